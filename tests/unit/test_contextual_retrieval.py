"""The contextual retrieval task: its sets, its criterion, its models, and what is read off them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics
from fairseq.trainer import Trainer
from torch import Tensor, nn

from sut_fairseq.analysis import retrieval
from sut_fairseq.criterions.absolute_error import AbsoluteErrorCriterion
from sut_fairseq.errors import InputError
from sut_fairseq.models.retrieval_network import (
    CONTEXTUAL_RETRIEVAL,
    ContextualRetrievalModel,
    ContextualRetrievalModelConfig,
)
from sut_fairseq.modules.contextual_retrieval import RetrievalNetwork
from sut_fairseq.tasks.contextual_retrieval import (
    ContextualRetrievalConfig,
    ContextualRetrievalTask,
)
from sut_fairseq.tasks.retrieval_sets import Rule, Sets
from tests import references
from tests.builders import EMBED_DIM, build_attention
from tests.comparison import assert_agree, normal, randomise
from tests.references import Options


def task_of(**options: Any) -> ContextualRetrievalTask:
    config = ContextualRetrievalConfig(
        **{"seed": 1, "sets_per_epoch": 512, "evaluation_sets": 300, **options}
    )
    return ContextualRetrievalTask(config)


def model_of(task: Any, arch: str = "compositional", **options: Any) -> ContextualRetrievalModel:
    torch.manual_seed(3)
    preset = CONTEXTUAL_RETRIEVAL[f"contextual_retrieval_{arch}"]
    config = ContextualRetrievalModelConfig(**{**preset, **options})
    return ContextualRetrievalModel.build_model(config, task)


def sets_of(task: ContextualRetrievalTask, split: str) -> Sets:
    task.load_dataset(split)
    return task.dataset(split).sets


def rows(preferences: Tensor) -> set[tuple[int, ...]]:
    return set(map(tuple, preferences.flatten(0, 1).tolist()))


def test_targets_by_plain_loops() -> None:
    """Equations 15, 17 and 18, object by object and search by search."""
    rule = Rule(4, (0.5, -0.25, 2.0))
    generator = torch.Generator().manual_seed(1)
    sets = rule.draw(5, 6, torch.randint(4, (9, 3), generator=generator), generator)
    targets = rule.targets(sets)
    features = rule.features(sets)
    assert features.shape == (5, 6, rule.num_features) and rule.num_features == 3 + 4 + 3 * 4
    for number in range(5):
        objects = sets.scalars[number].tolist()
        for i, own in enumerate(objects):
            preferences = sets.preferences[number, i].tolist()
            expected = 0.0
            for s, weight in enumerate(rule.weights):
                others = [j for j in range(6) if j != i]
                winner = min(others, key=lambda j, s=s, own=own: abs(own[s] - objects[j][s]))
                expected += weight * objects[winner][3 + preferences[s]]
            assert float(targets[number, i]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
            one_hot = [float(r == p) for p in preferences for r in range(4)]
            assert features[number, i].tolist() == pytest.approx([*own, *one_hot])


def test_what_is_held_out() -> None:
    """Table 5 of the paper; and the sizes of the larger task, 0.8 of which is trained on."""
    shown, held_out = Rule(4, (1.0, 1.0)).combinations(0.2)
    assert held_out.tolist() == [[2, 1], [2, 3], [3, 1], [3, 3]]
    assert len(shown) == 12 and [2, 1] not in shown.tolist()
    assert [len(one) for one in Rule(8, (1.0,) * 4).combinations(0.2)] == [3276, 820]
    assert [len(one) for one in Rule(4, (1.0, 1.0)).combinations(0.0)] == [16, 0]
    # Rounded up, but for what is lost in binary fractions.
    for share, number in ((0.07, 7), (0.34, 34), (0.341, 35)):
        assert len(Rule(10, (1.0, 1.0)).combinations(share)[1]) == number


def test_sets_have_the_combinations_that_they_are_for() -> None:
    task = task_of()
    shown, held_out = (
        set(map(tuple, task.combinations[end].tolist())) for end in ("", "_held_out")
    )
    assert rows(sets_of(task, "train").preferences) == shown
    assert rows(sets_of(task, "test").preferences) == shown
    assert rows(sets_of(task, "test_held_out").preferences) == held_out
    assert rows(sets_of(task, "valid_all").preferences) == shown | held_out
    everything = task_of(held_out=0.0)
    assert len(rows(sets_of(everything, "train").preferences)) == 16
    scalars = sets_of(task, "train").scalars
    assert abs(float(scalars.mean())) < 0.02 and float(scalars.std()) == pytest.approx(1, abs=0.02)


def test_what_the_sets_depend_on() -> None:
    """Training: seed and epoch; evaluation: the seed of the data alone."""

    def scalars(split: str, epoch: int = 1, **options: Any) -> Tensor:
        task = task_of(**options)
        task.load_dataset(split)
        dataset = task.dataset(split)
        dataset.set_epoch(epoch)
        return dataset.sets.scalars

    first = scalars("train")
    assert torch.equal(first, scalars("train", data_seed=2))
    assert not torch.equal(first, scalars("train", seed=2))
    assert not torch.equal(first, scalars("train", epoch=2))
    assert torch.equal(scalars("test"), scalars("test", epoch=5, seed=2))
    assert not torch.equal(scalars("test"), scalars("test", data_seed=2))
    assert not torch.equal(scalars("test"), scalars("valid"))


def test_batches() -> None:
    task = task_of()
    task.load_dataset("train")
    dataset = task.dataset("train")
    assert len(dataset) == 512 and dataset.num_tokens(3) == dataset.size(3) == 10
    batch = dataset.collater([dataset[3], dataset[7]])
    assert batch["net_input"]["objects"].shape == (2, 10, 14) and batch["target"].shape == (2, 10)
    assert batch["nsentences"] == 2 and batch["ntokens"] == 20
    targets = task.rule.targets(dataset.sets.select([3, 7]))
    torch.testing.assert_close(batch["target"].float(), targets, rtol=0, atol=0)
    assert not dataset.collater([]), "fairseq ignores an empty batch, which some workers get"
    iterator = task.get_batch_iterator(dataset, max_sentences=200, seed=1, epoch=2)
    assert sum(one["nsentences"] for one in iterator.next_epoch_itr()) == 512


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_spawned_data_workers_get_the_sets() -> None:
    """As macOS starts them: with a copy that travels as bytes."""
    task = task_of()
    task.load_dataset("train")
    there = pickle.loads(pickle.dumps(task.dataset("train")))
    for epoch in (1, 2):
        there.set_epoch(epoch)
        task.dataset("train").set_epoch(epoch)
        assert torch.equal(there.sets.scalars, task.dataset("train").sets.scalars)


def test_a_data_worker_draws_the_sets_of_each_epoch() -> None:
    """As without one, when the iterator is asked for as fairseq-train does after each epoch."""

    def targets(num_workers: int) -> list[Tensor]:
        task = task_of(sets_per_epoch=64)
        task.load_dataset("train")
        epochs = []
        for epoch in (1, 2):
            dataset = task.dataset("train")
            iterator = task.get_batch_iterator(
                dataset, max_sentences=16, epoch=epoch, num_workers=num_workers
            )
            batches = [batch["target"] for batch in iterator.next_epoch_itr()]
            epochs.append(torch.cat(batches))
        return epochs

    alone, worker = targets(0), targets(1)
    assert not torch.equal(*alone)
    for one, other in zip(alone, worker, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arch", "options", "parameters"),
    [
        ("multihead", {}, 30_113),
        ("multihead", {"encoder_attention_heads": 4}, 28_049),
        # The authors' 30,705 have a bias of 32 for retrieval keys, which changes nothing.
        ("compositional", {}, 30_673),
    ],
)
def test_sizes_of_the_paper(arch: str, options: dict[str, Any], parameters: int) -> None:
    """Table 6: 30k, 28k and 30k parameters."""
    model = model_of(task_of(), arch, **options)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("searches", "retrievals", "states", "thousands"),
    [(2, 4, 128, 119), (4, 8, 128, 118), (4, 8, 256, 458), (4, 8, 512, 1800), (4, 16, 256, 442)],
)
def test_larger_sizes_of_the_paper(
    searches: int, retrievals: int, states: int, thousands: int
) -> None:
    """Table 6: retrieval queries have the size of queries, and values share the states' size."""
    model = model_of(
        task_of(num_searches=searches, num_retrievals=retrievals),
        encoder_embed_dim=states,
        encoder_attention_heads=searches,
        attention_retrievals=retrievals,
        attention_value_dim=states // retrievals,
        attention_retrieval_dim=states // searches,
    )
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters / 1000 == pytest.approx(thousands, rel=0.01)


@pytest.mark.parametrize("several", [None, 3])
def test_the_extra_value_is_concatenated_before_the_output_projection(several: int | None) -> None:
    """y = MLP(W_o [searches; V h]) with the columns of W_o side by side, by plain loops."""
    options = Options(num_heads=2, num_retrievals=several, distribution="others")
    attention = build_attention(options, 1, bias=True, score_bias=True)
    network = RetrievalNetwork(attention, num_features=5, embed_dim=EMBED_DIM, extra_dim=3)
    randomise(network.double())
    objects = normal(2, 4, 5)
    weights = dict(network.named_parameters())

    def perceptron(name: str, state: Tensor) -> Tensor:
        hidden = references.linear(references.part(weights, f"{name}.0"), state).clamp(min=0)
        return references.linear(references.part(weights, f"{name}.2"), hidden)

    expected = []
    for one in objects:
        states = [perceptron("encode", features) for features in one]
        for i, state in enumerate(states):
            own = references.part(weights, "attention")
            context, _ = references.attention(own, options, state, i, dict(enumerate(states)))
            extra = references.linear(references.part(weights, "extra_value"), state)
            context = context + weights["extra_output.weight"] @ extra
            expected.append(perceptron("decode", context)[0])
    predictions = network(objects)
    # The bias of the keys adds the same to all scores of a query: its gradient is rounding.
    variables = {n: w for n, w in weights.items() if n != "attention.key.bias"}
    assert_agree(
        {"y": predictions},
        {"y": torch.stack(expected).view(2, 4)},
        {**variables, "objects": objects},
    )


def test_mean_absolute_error() -> None:
    criterion = AbsoluteErrorCriterion(task_of())
    target = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
    sample = {"net_input": {"objects": target + torch.tensor([[0.5, -1.5], [0.0, 2.0]])}}
    loss, size, log = criterion(lambda objects: (objects, {}), {**sample, "target": target})
    assert float(loss) == 4.0 and size == log["ntokens"] == 4 and log["nsentences"] == 2
    with pytest.raises(InputError, match=r"for each target, \(2, 2\) here, but got \(2,\)"):
        criterion(lambda objects: (objects[:, 0], {}), {**sample, "target": target})
    averaged = AbsoluteErrorCriterion(task_of(), sentence_avg=True)
    again, size, log = averaged(lambda objects: (objects, {}), {**sample, "target": target})
    assert again == loss and size == log["sample_size"] == 2 and log["ntokens"] == 4
    logs = [
        {"loss": torch.tensor(float(size)), "ntokens": size, "sample_size": 1} for size in (4, 1)
    ]
    with fairseq_metrics.aggregate(new_root=True) as logged:
        AbsoluteErrorCriterion.reduce_metrics(logs)
    assert float(logged.get_smoothed_values()["loss"]) == 1  # of all targets, not of batches


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_targets_are_not_rounded(precision: str) -> None:
    """fairseq's trainer rounds the float32 tensors of a batch: the objects, not the targets."""
    common = SimpleNamespace(**{"fp16": False, "bf16": False, precision: True})
    trainer = SimpleNamespace(cfg=SimpleNamespace(common=common))
    task = task_of()
    task.load_dataset("train")
    batch = task.dataset("train").collater(list(range(8)))
    rounded = Trainer._fp_convert_sample(trainer, batch)
    assert rounded["net_input"]["objects"].dtype.itemsize == 2
    criterion = AbsoluteErrorCriterion(task)
    half = batch["target"].to(rounded["net_input"]["objects"].dtype)
    loss, size, _ = criterion(lambda objects: (half, {}), rounded)
    error = (half.double() - batch["target"]).abs().sum()
    assert loss.dtype == torch.float32 and size == 80 and float(error) > 0
    torch.testing.assert_close(loss.double(), error, rtol=1e-4, atol=0)


def test_it_is_learned() -> None:
    """A small task: nothing but looking up the others brings the error below that of a constant."""
    task = task_of(num_searches=1, num_retrievals=2, num_objects=3, held_out=0.0)
    task.load_dataset("train")
    model = model_of(task, "compositional", encoder_attention_heads=1, attention_retrievals=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    dataset, criterion = task.dataset("train"), AbsoluteErrorCriterion(task)
    for step in range(120):
        dataset.set_epoch(1 + step // 4)
        batch = dataset.collater(list(range(128 * (step % 4), 128 * (step % 4 + 1))))
        loss, size, _ = criterion(model, batch)
        (loss / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    constant = float(batch["target"].abs().mean())
    errors = retrieval.absolute_errors(model, task)
    assert list(errors) == ["shown", "all"] and errors["shown"][0] == 300
    assert all(error < 0.6 * constant for _, error in errors.values())


class Swapped(nn.Module):
    """A model whose searches find and retrieve what they should, in another order."""

    def __init__(self, rule: Rule, sets: Sets) -> None:
        super().__init__()
        self.rule, self.sets = rule, sets

    def forward(self, objects: Tensor, look: Any = None) -> tuple[Tensor, dict[str, Any]]:
        winners = self.rule.winners(self.sets).flatten(0, 1).flip(1)
        look("weights", nn.functional.one_hot(winners, objects.shape[1]).double().unsqueeze(2))
        chosen = 3 - self.sets.preferences.flatten(0, 1).flip(1)
        look("value_scores", nn.functional.one_hot(chosen, 4).double())
        return self.rule.targets(self.sets), {}


@pytest.mark.parametrize("split", ["test", "test_held_out"])
def test_what_searches_retrieve(split: str) -> None:
    """The model's searches are matched with the task's; retrievals may be in any order."""
    task = task_of(evaluation_sets=64)
    sets = sets_of(task, split)
    found = retrieval.choices(Swapped(task.rule, sets), task, split)
    assert found.finder == [1, 0]
    assert float(found.found[1, 0]) == float(found.found[0, 1]) == 1.0
    wanted = {(s, p) for row in rows(sets.preferences) for s, p in enumerate(row)}
    for search in range(2):
        for preference in range(4):
            scores = found.by_wanted[search, preference]
            if (search, preference) in wanted:
                assert scores.tolist() == [float(j == 3 - preference) for j in range(4)]
            else:
                assert scores.isnan().all()
    assert found.by_search.sum(dim=1).tolist() == pytest.approx([1.0, 1.0])


def test_who_finds_what() -> None:
    """For each search of the task the search of the model that looks most at its object."""
    found = torch.tensor([[0.1, 0.8, 0.3], [0.9, 0.1, 0.2]])
    assert retrieval.Choices(torch.empty(3, 2, 2), torch.empty(2, 2), found).finder == [1, 0, 0]


def test_choices_of_the_real_model() -> None:
    task = task_of(evaluation_sets=300)
    found = retrieval.choices(model_of(task), task, "test")
    assert found.by_wanted.shape == (2, 4, 4) and found.by_search.shape == (2, 4)
    torch.testing.assert_close(found.by_wanted.sum(dim=-1), torch.ones(2, 4))
    assert found.found.shape == (2, 2) and (found.found > 0).all()
    with pytest.raises(InputError, match="chooses no retrievals"):
        retrieval.choices(model_of(task, "multihead"), task, "test")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_objects": 1}, "`num_objects` must be at least 2, but is 1 instead."),
        ({"num_retrievals": 0}, "`num_retrievals` must be at least 1, but is 0 instead."),
        ({"held_out": 0.6}, "`held_out` must be at least 0 and at most 0.5, but is 0.6 instead."),
        (
            {"num_searches": 5},
            "`num_searches` must be at most 4 unless `search_weights` are given, but is 5 instead.",
        ),
        (
            {"search_weights": "1,x"},
            "`search_weights` must be a number for each of the 2 searches, with commas between "
            "them, but is 1,x instead.",
        ),
        (
            {"search_weights": "1,nan"},
            "`search_weights` must be a number for each of the 2 searches, with commas between "
            "them, but is 1,nan instead.",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        task_of(**options)
    assert str(refused.value) == sentence


def test_bad_combinations() -> None:
    with pytest.raises(
        InputError, match="no set `test_held_out`; there are train, valid, valid_al"
    ):
        task_of(held_out=0.0).load_dataset("test_held_out")
    with pytest.raises(InputError, match="needs --task contextual_retrieval"):
        model_of(SimpleNamespace())
    with pytest.raises(InputError, match="`encoder_embed_dim` must be a multiple of"):
        model_of(task_of(), encoder_attention_heads=3)
    with pytest.raises(InputError, match="trained with --task contextual_retrieval"):
        retrieval.check_task(nn.Linear(1, 1), task_of())
