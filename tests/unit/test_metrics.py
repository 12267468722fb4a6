"""What is logged: ratios of sums over all batches, not means of ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from fairseq.logging import metrics as fairseq_metrics
from torch import Tensor

from sut_fairseq import metrics
from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.statistics import HaltingStatistics, RoutingStatistics
from tests.models import dictionary


def test_coefficient_of_variation() -> None:
    assert metrics.coefficient_of_variation(torch.tensor([3.0, 3, 3, 3])) == 0
    assert metrics.coefficient_of_variation(torch.tensor([0.0, 0, 8, 0])) == pytest.approx(3**0.5)
    assert metrics.coefficient_of_variation(torch.tensor([1.0, 3.0])) == pytest.approx(0.5)
    assert metrics.coefficient_of_variation(torch.zeros(4)) == 0


def test_relative_entropy() -> None:
    assert metrics.relative_entropy(torch.tensor([3.0, 3, 3, 3])) == pytest.approx(1)
    assert metrics.relative_entropy(torch.tensor([0.0, 0, 8, 0])) == 0
    assert metrics.relative_entropy(torch.tensor([5.0, 5, 0, 0])) == pytest.approx(0.5)
    assert metrics.relative_entropy(torch.zeros(4)) == 0
    assert metrics.relative_entropy(torch.tensor([5.0])) == 1


def routing(assignments: Sequence[float]) -> RoutingStatistics:
    """Statistics of which only the assignments are logged."""
    load = torch.tensor(assignments)
    return RoutingStatistics(load.sum(), load, load.sum(), load, load, load.sum())


def halting(*sums: float) -> HaltingStatistics:
    """Tokens, summed expected depth, steps run, steps possible; the remainder is not logged."""
    return HaltingStatistics(*(torch.tensor(value) for value in (*sums, 0.0)))


def log_of(
    sample_size: int,
    terms: Mapping[str, float],
    stacks: Mapping[str, HaltingStatistics],
    modules: Mapping[str, RoutingStatistics],
) -> dict[str, Any]:
    """A logging output as the criterion writes it, with a loss of 2 and an nll of 1 per token."""
    return {
        "loss": torch.tensor(2.0 * sample_size),
        "nll_loss": torch.tensor(1.0 * sample_size),
        "ntokens": sample_size,
        "nsentences": 2,
        "sample_size": sample_size,
        **{f"{name}_loss": torch.tensor(sample_size * value) for name, value in terms.items()},
        **metrics.halting_sums(stacks),
        **metrics.routing_sums(modules),
    }


def reduced(*calls: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """What fairseq shows after these calls of reduce_metrics."""
    with fairseq_metrics.aggregate(new_root=True) as aggregator:
        for logs in calls:
            CrossEntropyWithAuxiliaryCriterion.reduce_metrics(list(logs))
    return aggregator.get_smoothed_values()


FIRST = log_of(
    10,
    {"mutual_information": -0.5, "expected_depth": 2.0},
    {"encoder": halting(4.0, 8.0, 10.0, 24.0), "decoder": halting(5.0, 5.0, 5.0, 30.0)},
    {
        "encoder.feed_forward": routing([4, 0, 0, 4]),
        "decoder.feed_forward": routing([1, 1, 1, 0]),
    },
)
SECOND = log_of(
    30,
    {"mutual_information": -0.1, "expected_depth": 3.0},
    {"encoder": halting(12.0, 36.0, 50.0, 72.0), "decoder": halting(5.0, 25.0, 29.0, 30.0)},
    {
        "encoder.feed_forward": routing([4, 0, 0, 4]),
        "decoder.feed_forward": routing([1, 1, 1, 0]),
    },
)


def assert_reports_both(values: Mapping[str, Any]) -> None:
    assert values["loss"] == pytest.approx(2 / math.log(2), abs=1e-3)
    assert values["nll_loss"] == pytest.approx(1 / math.log(2), abs=1e-3)
    assert float(values["mutual_information_loss"]) == pytest.approx(-0.2, abs=1e-4)
    assert float(values["expected_depth_loss"]) == pytest.approx(2.75, abs=1e-4)
    assert "load_balance_loss" not in values
    assert values["encoder_expected_depth"] == pytest.approx(44 / 16, abs=1e-3)
    assert values["encoder_depth"] == pytest.approx(60 / 16, abs=1e-3)
    assert values["encoder_skipped"] == pytest.approx(1 - 60 / 96, abs=1e-3)
    assert values["decoder_expected_depth"] == pytest.approx(3, abs=1e-3)
    assert values["decoder_skipped"] == pytest.approx(1 - 34 / 60, abs=1e-3)
    # Shares (1/2, 0, 0, 1/2) and (1/3, 1/3, 1/3, 0), the mean of both modules.
    assert values["load_cv"] == pytest.approx((1 + (1 / 3) ** 0.5) / 2, abs=1e-3)
    expected_entropy = (math.log(2) + math.log(3)) / 2 / math.log(4)
    assert values["load_entropy"] == pytest.approx(expected_entropy, abs=1e-3)
    assert values["dead_experts"] == 3
    assert not [name for name in values if name.startswith("_")]


@pytest.mark.parametrize("split", [False, True], ids=["two workers", "two updates"])
def test_ratios_of_sums(split: bool) -> None:
    """The same figures however the batches are spread over workers and updates."""
    calls = [[FIRST], [SECOND]] if split else [[FIRST, SECOND]]
    assert_reports_both(reduced(*calls))


def test_workers_that_sum_first() -> None:
    """With `logging_outputs_can_be_summed` fairseq adds up entries before they are reduced."""
    assert CrossEntropyWithAuxiliaryCriterion.logging_outputs_can_be_summed()
    added = {name: FIRST[name] + SECOND[name] for name in FIRST}
    assert_reports_both(reduced([added]))


def test_an_expert_is_dead_only_if_no_batch_has_used_it() -> None:
    one = log_of(1, {}, {}, {"encoder.feed_forward": routing([1, 0, 0])})
    other = log_of(1, {}, {}, {"encoder.feed_forward": routing([0, 0, 1])})
    assert reduced([one])["dead_experts"] == 2
    assert reduced([one], [other])["dead_experts"] == 1


def test_a_model_without_statistics_logs_none() -> None:
    values = reduced([log_of(4, {}, {}, {})])
    assert values["loss"] == pytest.approx(2 / math.log(2), abs=1e-3)
    for name in ("load_cv", "dead_experts", "encoder_depth", "expected_depth_loss"):
        assert name not in values


def test_accuracies_are_ratios_of_sums() -> None:
    """Over all updates, by group and of all; a group without sentences has none."""
    first = metrics.accuracy_sums(torch.tensor([True]), torch.tensor([0]), 3)
    right, groups = torch.tensor([False, False, True]), torch.tensor([0, 0, 1])
    second = metrics.accuracy_sums(right, groups, 3)
    for calls in ([[first], [second]], [[first, second]], [[first, {}, second]]):
        with fairseq_metrics.aggregate(new_root=True) as logged:
            for logs in calls:
                metrics.log_accuracy(logs, "abc")
        expected = {"accuracy_a": 33.333, "accuracy_b": 100.0, "accuracy": 50.0}
        assert logged.get_smoothed_values() == expected


def test_exact_match_is_a_ratio_of_sums() -> None:
    """Of one sentence, of several batches, some without it, and of batches that do not count."""
    words = dictionary()
    target = torch.tensor([[6, words.eos()], [7, words.eos()], [8, words.eos()]])
    scores = torch.nn.functional.one_hot(target, len(words)).float()
    one = metrics.exact_match_sums(scores[:1], target[:1], words)
    none = metrics.exact_match_sums(scores[:2], target[1:], words)
    nothing = {key: 0 * value for key, value in one.items()}
    for logs, expected in (([one], 100.0), ([one, {}, none], 33.333), ([nothing], 0.0)):
        with fairseq_metrics.aggregate(new_root=True) as logged:
            metrics.log_exact_match(logs)
        assert logged.get_smoothed_values() == {"exact_match": expected}


def test_sums_carry_no_graph() -> None:
    """A logged tensor with a graph would keep the whole batch's activations alive."""
    value = torch.ones(4, requires_grad=True) * 2
    sums: dict[str, Tensor] = {
        **metrics.halting_sums({"encoder": HaltingStatistics(*value, value[0])}),
        **metrics.routing_sums({"m": RoutingStatistics(*[value] * 6)}),
    }
    assert len(sums) == 5
    assert not any(tensor.requires_grad for tensor in sums.values())


def test_an_unknown_word_is_never_found() -> None:
    """To predict the symbol of unknown words is not to know the word."""
    words = dictionary()
    target = torch.tensor([[6, words.unk(), 2], [6, 7, 2]])
    scores = torch.nn.functional.one_hot(target, len(words)).float()
    found = metrics.found_by_greedy_search(scores, target, words)
    assert found.tolist() == [False, True]


def test_what_is_never_predicted_keeps_its_score() -> None:
    """Neither padding nor an empty sentence is, however probable; others may read the scores."""
    words = dictionary()
    target = torch.tensor([[6, 7, words.eos()]])
    scores = torch.nn.functional.one_hot(target, len(words)).float()
    scores[..., words.pad()] = 2.0
    scores[:, 0, words.eos()] = 3.0
    given = scores.clone()
    assert metrics.found_by_greedy_search(scores, target, words).all()
    assert scores.equal(given)


def test_a_given_prefix_need_not_be_predicted() -> None:
    """After it the sentence may end at once; without one it may not."""
    words = dictionary()
    unk, eos, pad = words.unk(), words.eos(), words.pad()
    target = torch.tensor([[6, 7, eos], [unk, 7, eos], [6, eos, pad], [eos, pad, pad]])
    predicted = torch.tensor([[8, 7, eos], [8, 7, eos], [8, eos, eos], [eos, eos, eos]])
    for size, expected in (
        (0, [False, False, False, False]),
        (1, [True, True, True, True]),
        (2, [True, True, True, True]),
    ):
        scores = torch.nn.functional.one_hot(predicted, len(words)).float()
        found = metrics.found_by_greedy_search(scores, target, words, prefix_size=size)
        assert found.tolist() == expected, size
    wrong = torch.nn.functional.one_hot(predicted.new_tensor([[6, 8, eos]]), len(words)).float()
    assert not metrics.found_by_greedy_search(wrong, target[:1], words, prefix_size=1).any()
