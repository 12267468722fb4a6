"""Two processes that train together equal one that computes all their batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.losses import AUXILIARY_LOSSES
from tests.models import (
    COMPOSITIONAL,
    HALTING,
    MIXTURE,
    NDR,
    RETRIEVAL_FEATURES,
    batch,
    dictionary,
    sample_of,
    small_model,
)
from tests.workers import Case, Pair, Sample, configuration, train, train_alone

EVERY_LOSS = {loss.name: 0.1 for loss in AUXILIARY_LOSSES}
SUT = dict(MIXTURE, **HALTING, alpha_threshold=0.6)
QUIET = dict(attention_query_dropout=0.0, copy_gate_dropout=0.0)
ACT = dict(encoder_halting="act", decoder_halting="act-ut", halting_epsilon=0.4)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as workers:
        yield workers


def sentences(seed: int, number: int = 3) -> Sample:
    """A batch of translation; lengths depend on the seed, so that no two batches weigh the same."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [torch.randint(2, 9, (number,), generator=generator).tolist() for _ in range(2)]
    return sample_of(batch(*map(tuple, lengths), seed=seed))


def labelled(seed: int, number: int = 3) -> Sample:
    """A batch of classification."""
    source = sentences(seed, number)["net_input"]
    labels = dictionary(5, "v")
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(labels.nspecial, len(labels), (number, 1), generator=generator)
    target = torch.cat([words, torch.full_like(words, labels.eos())], dim=1)
    return {"net_input": source, "target": target}


def numbers(seed: int, number: int = 3) -> Sample:
    """A batch of contextual retrieval, with a target that no rule gave."""
    generator = torch.Generator().manual_seed(seed)
    objects = torch.randn(number, 5, RETRIEVAL_FEATURES, generator=generator)
    return {
        "net_input": {"objects": objects},
        "target": torch.randn(number, 5, generator=generator),
    }


def updates(make: Any = sentences, *, frequency: int = 1, number: int = 2) -> list[Any]:
    """Different batches for each update and worker."""
    seeds = iter(range(1000))
    return [
        [[make(next(seeds)) for _ in range(frequency)] for _ in range(2)] for _ in range(number)
    ]


def together(case: Case) -> Case:
    """The same training with one batch where both workers have one each."""
    joined = []
    for update in case.updates:
        batches = [[b for b in both if b is not None] for both in zip(*update, strict=True)]
        joined.append([[join(*both) for both in batches if both], []])
    return replace(case, updates=joined)


def join(*samples: Sample) -> Sample:
    """One batch of several, padded anew."""
    pad = dictionary().pad()

    def stacked(tensors: list[Tensor], left: bool) -> Tensor:
        width = max(tensor.shape[1] for tensor in tensors)
        gaps = [width - tensor.shape[1] for tensor in tensors]
        sides = [(gap, 0) if left else (0, gap) for gap in gaps]
        return torch.cat([F.pad(t, side, value=pad) for t, side in zip(tensors, sides)])

    inputs = [sample["net_input"] for sample in samples]
    result = {
        "src_tokens": stacked([one["src_tokens"] for one in inputs], left=True),
        "src_lengths": torch.cat([one["src_lengths"] for one in inputs]),
        "prev_output_tokens": stacked([one["prev_output_tokens"] for one in inputs], left=False),
    }
    if "ntokens" not in samples[0]:
        return {"net_input": result, "target": torch.cat([one["target"] for one in samples])}
    return {
        "net_input": result,
        "target": stacked([one["target"] for one in samples], left=False),
        "ntokens": sum(one["ntokens"] for one in samples),
    }


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The greatest difference of any parameter."""
    assert one.keys() == other.keys()
    return max(float((value - other[name]).abs().max()) for name, value in one.items())


def assert_equal(pair: Pair, case: Case, alone: Case) -> None:
    """Compare parameters and logged losses, after seeing that the training did something."""
    first, second = pair(train, case, configuration(case))
    expected = train_alone(alone)
    assert difference(expected.before, expected.after) > 0.01
    assert difference(first.after, second.after) == 0
    assert difference(first.after, expected.after) < 1e-5
    for ours, theirs in zip(first.logs, expected.logs, strict=True):
        assert {"loss", "sample_size"} <= theirs.keys()
        for name in theirs.keys() & {"loss", "nll_loss", "sample_size"}:
            # Logged numbers have three decimals.
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1.001e-3), name


def changing(case: Case, **changes: Any) -> Case:
    """The same case with other options of the model, or other values of its own fields."""
    own = {name: changes.pop(name) for name in list(changes) if hasattr(case, name)}
    return replace(case, **own, model={**case.model, **changes})


SUT_CASE = Case(updates(), SUT, weights=EVERY_LOSS)
OTHER_CRITERION = "--criterion label_smoothed_cross_entropy"
NDR_CASE = Case(updates(), {**NDR["ndr"], **QUIET})
LABELS = updates(labelled)
AVERAGED = {
    "sut": SUT_CASE,
    "sut, two batches": changing(SUT_CASE, updates=updates(frequency=2)),
    "sut, legacy_ddp": changing(SUT_CASE, flags="--ddp-backend legacy_ddp"),
    "sut, checkpointed": changing(SUT_CASE, checkpoint_activations=True),
    "sut, constant shapes": changing(
        SUT_CASE, token_layout="masked", expert_backend="grouped", encoder_ffn_embed_dim=16
    ),
    "sut, bfloat16": changing(SUT_CASE, flags="--autocast bfloat16"),
    # Routers have gradients of 0 there.
    "sut, one expert for each token, another criterion": changing(
        SUT_CASE, weights={}, flags=OTHER_CRITERION, attention_top_k=1, ffn_top_k=1
    ),
    "sut, a step": changing(SUT_CASE, encoder_layers=1, decoder_layers=1),
    "act": changing(SUT_CASE, **ACT),
    "compositional": changing(SUT_CASE, **COMPOSITIONAL, attention_experts=1, attention_top_k=1),
    "ndr": NDR_CASE,
    "ndr, two batches": changing(NDR_CASE, updates=updates(frequency=2)),
    "sut classifier": changing(SUT_CASE, updates=LABELS, classifies=True),
    "ndr classifier": changing(NDR_CASE, updates=LABELS, classifies=True),
}


# The same model elsewhere: two batches, the classifier and ACT below, the backend where tokens halt
# after a step.
COVERED = ("sut, two batches", "sut, legacy_ddp", "ndr, two batches", "sut classifier", "act")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if name in COVERED else [])
        for name, case in AVERAGED.items()
    ],
)
def test_workers_average_what_one_process_averages(pair: Pair, case: Case) -> None:
    """Each worker's auxiliary losses are those of its batch, as in `--update-freq 2` alone."""
    assert_equal(pair, case, case)


EXACT = {
    "sut": changing(SUT_CASE, over_workers=True),
    "sut, two batches": changing(SUT_CASE, updates=updates(frequency=2), over_workers=True),
    "act": changing(SUT_CASE, **ACT, over_workers=True),
    "ndr": NDR_CASE,
    "sut classifier": changing(SUT_CASE, updates=LABELS, classifies=True, over_workers=True),
}
ELSEWHERE = ("sut, two batches", "ndr")


# Two batches also where epochs end unevenly, and without an auxiliary loss above.
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if name in ELSEWHERE else [])
        for name, case in EXACT.items()
    ],
)
def test_workers_equal_one_process_with_twice_the_batch(pair: Pair, case: Case) -> None:
    """With the sums of all workers; without an auxiliary loss there is nothing to add up."""
    assert_equal(pair, case, together(case))


def test_the_mean_of_auxiliary_losses_is_not_the_loss_of_all_batches() -> None:
    """What the flag is for: the difference is a hundred times what counts as equal here."""
    one, other = (train_alone(case) for case in (SUT_CASE, together(SUT_CASE)))
    assert difference(one.after, other.after) > 1e-3


def test_the_decoders_expected_depth_is_the_same_either_way(pair: Pair) -> None:
    """A mean over the tokens that the sample size counts: the only term of which that holds."""
    options = {**SUT, "encoder_halting": "none"}
    case = Case(updates(), options, weights={"expected_depth": 0.5})
    assert_equal(pair, case, together(case))


def uneven(make: Any) -> list[Any]:
    """Updates in which workers have different numbers of batches."""
    return [
        [[make(0), make(1, 2)], [make(2), make(3, 1)]],
        [[make(4), make(5)], [make(6), None]],  # the end of an epoch
        [[make(7), make(8, 1)], [make(9), make(10)]],
        [[make(11)], [None]],  # the end of another
    ]


@pytest.mark.parametrize("over_workers", [False, True])
def test_uneven_ends_of_epochs(pair: Pair, over_workers: bool) -> None:
    """A worker without a batch computes with an old one, which counts as nothing anywhere."""
    case = changing(SUT_CASE, updates=uneven(sentences), over_workers=over_workers)
    alone = together(case) if over_workers else case
    assert_equal(pair, case, alone)
    label = [[[labelled(0)], [labelled(1)]], [[labelled(2)], [None]]]
    case = changing(case, updates=label, classifies=True)
    assert_equal(pair, case, together(case) if over_workers else case)


def test_uneven_ends_of_epochs_of_numbers(pair: Pair) -> None:
    """The criterion that has no auxiliary losses."""
    case = Case(uneven(numbers), retrieves=True)
    assert_equal(pair, case, case)


def words_decide(model: nn.Module) -> None:
    """Half of the words halt after a step with certainty, the other half never."""
    stacks = [(model.encoder.embedding, model.encoder.stack)]
    stacks += [(model.decoder.embedding, model.decoder.stack)]
    with torch.no_grad():
        for embedding, stack in stacks:
            number = torch.arange(len(embedding.tokens.weight)) - dictionary().nspecial
            sign = torch.where((number % 2 == 0) | (number < 0), 1.0, -1.0)
            embedding.tokens.weight[:, 0] = 20.0 * sign
            halting = stack.halting
            halting.input.weight.zero_()
            halting.input.bias.zero_()
            halting.input.weight[:2, 0] = torch.tensor([4.0, -4.0])
            halting.output.weight.zero_()
            halting.output.weight[:, :2] = torch.eye(2)


def with_words(sample: Sample, halting: bool) -> Sample:
    """The same batch of words all of which halt at once, or none of which do."""

    def chosen(tokens: Tensor) -> Tensor:
        number = tokens - dictionary().nspecial
        return torch.where(number >= 0, tokens - number + number % 3 * 2 + (not halting), tokens)

    inputs = {
        name: tokens if name == "src_lengths" else chosen(tokens)
        for name, tokens in sample["net_input"].items()
    }
    return sample_of(inputs)


@pytest.mark.parametrize(
    ("backend", "layout", "ours"),
    [
        ("pytorch_ddp", "compact", True),
        ("legacy_ddp", "compact", True),
        pytest.param("pytorch_ddp", "masked", True, marks=pytest.mark.slow),
        pytest.param("legacy_ddp", "masked", True, marks=pytest.mark.slow),
        # Other criterions; pytorch_ddp with the compact layout waits for the halting unit.
        ("pytorch_ddp", "masked", False),
        ("legacy_ddp", "compact", False),
    ],
)
def test_one_worker_all_of_whose_tokens_halt_after_a_step(
    pair: Pair, backend: str, layout: str, ours: bool
) -> None:
    """Its graph ends there; it still has a gradient for every parameter that others wait for."""
    late, early = (
        [with_words(sentences(seed), halting=halting) for seed in range(2)]
        for halting in (False, True)
    )
    case = changing(
        SUT_CASE,
        updates=[[[one], [other]] for one, other in zip(late, early)],
        flags=f"--ddp-backend {backend} {'' if ours else OTHER_CRITERION}",
        weights=EVERY_LOSS if ours else {},
        prepare=words_decide,
        token_layout=layout,
        alpha_threshold=0.9,
    )
    model = small_model(**case.model, dtype=torch.float32)
    words_decide(model)
    for halting, number_of_steps in (
        (model(**early[0]["net_input"])[1]["halting"], 1),
        (model(**late[0]["net_input"])[1]["halting"], 4),
    ):
        depths = {name: float(sums.depth) for name, sums in halting.items()}
        assert depths["encoder"] == number_of_steps
        assert (depths["decoder"] == 1) == (number_of_steps == 1)
    assert_equal(pair, case, case)
    if ours:
        exact = changing(case, over_workers=True)
        assert_equal(pair, exact, together(exact))
