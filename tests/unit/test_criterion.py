"""The objective: cross-entropy plus weighted terms, in a balance that no batch size changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from sut_fairseq import losses
from sut_fairseq._workers import IGNORED
from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.errors import InputError
from tests.models import HALTING, MIXTURE, batch, padding, sample_of, small_model, task

WEIGHTS = dict(
    mutual_information=0.3,
    load_balance=0.2,
    load_variation=0.05,
    router_z=0.01,
    expected_depth=0.4,
)
LOSSES = dict(
    mutual_information=losses.mutual_information,
    load_balance=losses.load_balance,
    load_variation=losses.squared_coefficient_of_variation,
    router_z=losses.router_z,
)


def copies_of_a_batch(copies: int = 1) -> dict[str, Any]:
    return sample_of(
        {name: values.repeat(copies, *[1] * (values.dim() - 1)) for name, values in batch().items()}
    )


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_the_sum_of_its_terms(sentence_avg: bool) -> None:
    model = small_model(**MIXTURE, **HALTING)
    sample = copies_of_a_batch()
    ours = CrossEntropyWithAuxiliaryCriterion(task(), sentence_avg, 0.1, weights=WEIGHTS)
    loss, sample_size, log = ours(model, sample)
    assert sample_size == log["sample_size"] == (3 if sentence_avg else sample["ntokens"])

    plain, _, plain_log = LabelSmoothedCrossEntropyCriterion(task(), sentence_avg, 0.1)(
        model, sample
    )
    _, extra = model(**sample["net_input"])
    assert len(extra["routing"]) == 5 and len(extra["halting"]) == 2
    terms = {
        name: sum(function(sums) for sums in extra["routing"].values())
        for name, function in LOSSES.items()
    }
    terms["expected_depth"] = sum(map(losses.expected_depth, extra["halting"].values()))
    expected = plain + sample_size * sum(WEIGHTS[n] * t for n, t in terms.items())
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(log["nll_loss"], plain_log["nll_loss"])
    torch.testing.assert_close(log["loss"], loss.detach())
    for name, term in terms.items():
        torch.testing.assert_close(log[f"{name}_loss"], sample_size * term.detach())


def test_without_weights_it_is_the_cross_entropy() -> None:
    """The terms are still logged: what is not optimised can be watched."""
    model = small_model(**MIXTURE, **HALTING)
    sample = copies_of_a_batch()
    loss, _, log = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1)(model, sample)
    plain, _, _ = LabelSmoothedCrossEntropyCriterion(task(), False, 0.1)(model, sample)
    torch.testing.assert_close(loss.float(), plain)
    assert {"mutual_information_loss", "expected_depth_loss"} < log.keys()


def test_the_balance_does_not_depend_on_the_batch_size() -> None:
    """Three copies of a batch: three times the objective, so the same direction of descent."""
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights=WEIGHTS)
    gradients = []
    for copies in (1, 3):
        model = small_model(**MIXTURE, **HALTING, alpha_threshold=0.6)
        loss, sample_size, _ = criterion(model, copies_of_a_batch(copies))
        (loss / sample_size).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        # fairseq computes the cross-entropy in float32 whatever the model.
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-6)


def test_a_batch_that_does_not_count() -> None:
    """One that a worker computes because it has no other: zeros, and gradients of 0 for all."""
    model = small_model(**MIXTURE, **HALTING).train()
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights=WEIGHTS)
    ignored = copies_of_a_batch() | {IGNORED: True}
    loss, sample_size, log = criterion(model, ignored)
    assert sample_size == 0 and not any(torch.as_tensor(value).any() for value in log.values())
    assert log.keys() == criterion(model, copies_of_a_batch())[2].keys()
    loss.backward()
    assert float(loss.detach()) == 0
    assert not any(parameter.grad.any() for parameter in model.parameters())


def test_autocast_in_training_alone() -> None:
    """The scores in bfloat16; the objective and all that is logged in float32."""
    model = small_model(**MIXTURE, **HALTING, dtype=torch.float32)
    dtypes = []
    model.register_forward_hook(lambda module, inputs, output: dtypes.append(output[0].dtype))
    sample = copies_of_a_batch()
    criterion = CrossEntropyWithAuxiliaryCriterion(
        task(), False, 0.1, weights=WEIGHTS, autocast="bfloat16"
    )
    loss, _, log = criterion.train()(model.train(), sample)
    loss.backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    assert {loss.dtype, *(v.dtype for v in log.values() if isinstance(v, Tensor))} == {
        torch.float32
    }
    criterion.eval()(model.eval(), sample)
    assert dtypes == [torch.bfloat16, torch.float32]


def test_a_dense_model_without_halting_has_no_terms() -> None:
    model = small_model()
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights=WEIGHTS)
    loss, _, log = criterion(model, copies_of_a_batch())
    plain, _, _ = LabelSmoothedCrossEntropyCriterion(task(), False, 0.1)(model, copies_of_a_batch())
    torch.testing.assert_close(loss.float(), plain)
    assert set(log) == {"loss", "nll_loss", "ntokens", "nsentences", "sample_size"}


def test_weights_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    weights = dict(mutual_information=0.3, expected_depth=0.4)
    for model in (small_model(), small_model(**MIXTURE, **HALTING)):
        criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights=weights)
        for _ in range(2):
            criterion(model, copies_of_a_batch())
    assert [record.getMessage() for record in caplog.records] == [
        "--mutual-information-weight 0.3 has no effect: this model has no routers",
        "--expected-depth-weight 0.4 has no effect: this model has no halting",
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(label_smoothing=1.5), "`label_smoothing` must be at least 0 and less than 1"),
        (dict(label_smoothing=1), "`label_smoothing` must be at least 0 and less than 1, but is 1"),
        (
            dict(label_smoothing=0.1, weights=dict(router_z=float("nan"))),
            "`router_z_weight` must be a finite number, but is nan instead.",
        ),
        (  # a training loop of one's own gives them without a parser that checks their names
            dict(label_smoothing=0.1, weights=dict(mutual_info=0.1)),
            "`weights` must be one of mutual_information, load_balance, ",
        ),
    ],
)
def test_weights_out_of_range(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        CrossEntropyWithAuxiliaryCriterion(task(), False, **options)
    assert str(error.value).startswith(sentence)


def test_reported_accuracy() -> None:
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, report_accuracy=True)
    sample = copies_of_a_batch()
    model = small_model()
    scores, _ = model(**sample["net_input"])
    # So that some are right.
    found = scores.argmax(dim=-1)
    sample["target"][:, :2] = torch.where(padding(sample["target"]), sample["target"], found)[:, :2]
    _, _, log = criterion(model, sample)
    assert log["total"] == sample["ntokens"]
    right = found.eq(sample["target"]) & ~padding(sample["target"])
    assert log["n_correct"] == right.sum() > 0


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_exact_match_is_that_of_greedy_search(seed: int, prefix: int) -> None:
    """Counted without a search, it is the number of references that a search finds.

    With `--ignore-prefix-size` the search is given the beginning of each.
    """
    model = small_model(**MIXTURE, **HALTING, seed=seed, alpha_threshold=0.7)
    words = task().target_dictionary
    with torch.no_grad():  # so that sentences end
        model.decoder.output_projection.weight[words.eos()] *= 3
    inputs = batch((6, 2, 4, 3, 5), (3, 7, 5, 4, 2), seed=seed)
    source = {name: inputs[name] for name in ("src_tokens", "src_lengths")}
    search = SequenceGenerator([model], words, beam_size=1, max_len_b=12)
    given = torch.full((5, prefix), words.nspecial) + torch.arange(prefix)
    hypotheses = search.generate([model], {"net_input": source}, prefix_tokens=given)
    found = [best[0]["tokens"] for best in hypotheses]
    ended = [len(tokens) <= 12 for tokens in found]  # the others were cut off
    assert any(ended)

    target = torch.full((5, 13), words.pad())
    for number, tokens in enumerate(found):
        target[number, : len(tokens)] = tokens
    findable = [ends and words.unk() not in tokens for ends, tokens in zip(ended, found)]
    changed = findable.index(True) if seed % 2 else None  # a reference that no search finds
    if changed is not None:
        first = target[changed, prefix].clone()
        target[changed, prefix] = words.nspecial + (first == words.nspecial).long()
    inputs["prev_output_tokens"] = target.roll(1, dims=1)
    inputs["prev_output_tokens"][:, 0] = words.eos()
    sample = {"net_input": inputs, "target": target, "ntokens": int((~padding(target)).sum())}
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, prefix).eval()
    _, _, log = criterion(model, sample)
    expected = sum(findable) - (changed is not None)
    assert log["exact_match_sentences"] == 5
    assert expected <= log["exact_match_right"] <= expected + 5 - sum(ended)
    assert "exact_match_right" not in criterion.train()(model, sample)[2]
