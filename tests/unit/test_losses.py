"""Known values of the auxiliary losses, and sums that add up."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sut_fairseq import losses
from sut_fairseq.statistics import (
    HaltingStatistics,
    RouterCalls,
    RoutingStatistics,
    route_statistics,
)
from tests import reference_losses
from tests.references import Call

NUM_EXPERTS = 4
ROUTING_LOSSES = [
    losses.mutual_information,
    losses.load_balance,
    losses.squared_coefficient_of_variation,
    losses.router_z,
]


def statistics_of(
    scores: Tensor, top_k: int = 1, call_weights: Tensor | None = None
) -> RoutingStatistics:
    """What a router reports for these scores `(num_tokens, num_experts)`."""
    top = scores.topk(top_k, dim=-1)
    calls = RouterCalls(scores, top.indices, top.values.softmax(-1), call_weights)
    return route_statistics([calls])


def certain(experts: list[int], margin: float = 1e4) -> Tensor:
    """Scores of tokens so certain of one expert that the other probabilities underflow to 0."""
    return torch.nn.functional.one_hot(torch.tensor(experts), NUM_EXPERTS).float() * margin


BALANCED = certain([0, 1, 2, 3, 3, 2, 1, 0])
UNIFORM = torch.full((6, NUM_EXPERTS), 0.7)
COLLAPSED = certain([2] * 5)


@pytest.mark.parametrize(
    "loss, scores, expected",
    [
        (losses.mutual_information, BALANCED, -math.log(NUM_EXPERTS)),
        (losses.mutual_information, UNIFORM, 0),
        (losses.mutual_information, COLLAPSED, 0),
        (losses.load_balance, BALANCED, 1),
        (losses.load_balance, UNIFORM, 1),
        (losses.load_balance, COLLAPSED, NUM_EXPERTS),
        (losses.squared_coefficient_of_variation, BALANCED, 0),
        (losses.squared_coefficient_of_variation, COLLAPSED, NUM_EXPERTS - 1),
        (losses.router_z, UNIFORM, (0.7 + math.log(NUM_EXPERTS)) ** 2),
        (losses.router_z, COLLAPSED, 1e8),
    ],
)
def test_known_values(
    loss: Callable[[RoutingStatistics], Tensor], scores: Tensor, expected: float
) -> None:
    assert float(loss(statistics_of(scores))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", ROUTING_LOSSES)
def test_a_rare_expert_counts_like_the_others(loss: Callable[[RoutingStatistics], Tensor]) -> None:
    """As in plain loops, where no token gives an expert as much as a thousandth."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(9, NUM_EXPERTS, generator=generator, dtype=torch.float64)
    scores[:, 3] -= 12
    weights = torch.rand(9, generator=generator, dtype=torch.float64)
    calls = []
    for row, weight in zip(scores, weights):
        exponentials = row.exp()
        first, second = sorted(range(NUM_EXPERTS), key=lambda e: -float(row[e]))[:2]
        both = exponentials[first] + exponentials[second]
        gates = {e: exponentials[e] / both for e in (first, second)}
        total = exponentials.sum()
        calls.append(Call(list(exponentials / total), gates, total.log(), weight))
    expected = getattr(reference_losses, loss.__name__)(calls)
    torch.testing.assert_close(loss(statistics_of(scores, 2, weights)), expected)


def test_mutual_information_of_halves() -> None:
    """Two experts by turns with certainty: H(e) = log 2, H(e|x) = 0."""
    value = losses.mutual_information(statistics_of(certain([1, 3, 1, 3])))
    assert float(value) == pytest.approx(-math.log(2))


def test_minimising_mutual_information_leaves_collapse() -> None:
    """The sign: from nearly collapsed routing the gradient moves weight to the unused experts."""
    scores = torch.zeros(6, NUM_EXPERTS)
    scores[:, 0] = 3.0
    scores[3:, 1] += 0.5
    scores.requires_grad_()
    losses.mutual_information(statistics_of(scores)).backward()
    assert (scores.grad[3:, 1] < 0).all() and (scores.grad[3:, 0] > 0).all()
    stepped = (scores - 10 * scores.grad).detach()
    before = losses.mutual_information(statistics_of(scores.detach()))
    assert losses.mutual_information(statistics_of(stepped)) < before


@pytest.mark.parametrize("loss", ROUTING_LOSSES)
@pytest.mark.parametrize(
    "scores",
    [COLLAPSED, BALANCED, UNIFORM, certain([0], 80.0), torch.zeros(0, NUM_EXPERTS)],
    ids=["collapsed", "balanced", "uniform", "nearly collapsed", "no tokens"],
)
def test_finite_with_finite_gradients(
    scores: Tensor, loss: Callable[[RoutingStatistics], Tensor]
) -> None:
    scores = scores.clone().requires_grad_()
    value = loss(statistics_of(scores, top_k=2))
    assert value.isfinite()
    value.backward()
    assert scores.grad.isfinite().all()
    if not len(scores):
        assert float(value.detach()) == 0


@pytest.mark.parametrize("loss", ROUTING_LOSSES)
def test_tokens_of_weight_zero_count_for_nothing(
    loss: Callable[[RoutingStatistics], Tensor],
) -> None:
    scores = torch.randn(9, NUM_EXPERTS, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.tensor([1, 0, 0.5, 0, 1, 1, 0.25, 0, 1])
    kept = weights > 0
    with_them, without = (x.clone().requires_grad_() for x in (scores, scores[kept]))
    value = loss(statistics_of(with_them, 2, weights))
    expected = loss(statistics_of(without, 2, weights[kept]))
    assert float(value.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)
    value.backward()
    expected.backward()
    torch.testing.assert_close(with_them.grad[kept], without.grad, rtol=1e-12, atol=1e-12)
    assert not with_them.grad[~kept].any()


@pytest.mark.parametrize("loss", ROUTING_LOSSES)
def test_a_weight_counts_like_repetition(loss: Callable[[RoutingStatistics], Tensor]) -> None:
    """Weights as small as those of steps that hardly any token reaches, too."""
    scores = torch.randn(3, NUM_EXPERTS, generator=torch.Generator().manual_seed(1)).double()
    weights = torch.tensor([1.0, 3.0, 2.0]).double()
    weighted = loss(statistics_of(scores, 2, weights))
    repeated = loss(statistics_of(scores[[0, 1, 1, 1, 2, 2]], 2))
    assert float(weighted) == pytest.approx(float(repeated), abs=1e-12)
    seldom = loss(statistics_of(scores, 2, 0.01 * weights))
    assert float(seldom) == pytest.approx(float(repeated), abs=1e-12)
    assert float(weighted) != pytest.approx(float(loss(statistics_of(scores, 2))), abs=1e-6)


def test_the_mean_over_workers_bounds_the_mutual_information_of_all() -> None:
    """Minus an entropy is convex: each worker's batch alone asks for more balance (Jensen)."""
    differences = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        parts = [
            statistics_of(3 * torch.randn(6, NUM_EXPERTS, generator=generator).double())
            for _ in range(2)
        ]
        mean = sum(losses.mutual_information(part) for part in parts) / 2
        differences.append(float(mean - losses.mutual_information(parts[0] + parts[1])))
    # The losses are negative: what is missing is information about the worker.
    assert min(differences) > 0 and max(differences) < math.log(2)


def test_call_weights_get_no_gradient() -> None:
    """Balancing the experts must not teach tokens when to halt."""
    scores = torch.randn(5, NUM_EXPERTS, requires_grad=True)
    weights = torch.rand(5, requires_grad=True)
    statistics = statistics_of(scores, 2, weights)
    total = sum(loss(statistics) for loss in ROUTING_LOSSES)
    assert torch.autograd.grad(total, weights, allow_unused=True) == (None,)


def test_load_balance_pushes_the_probabilities_only() -> None:
    """The share of assignments is a count; the gradient lowers the busy expert's probability."""
    scores = torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], requires_grad=True)
    losses.load_balance(statistics_of(scores)).backward()
    assert (scores.grad[:, 0] > 0).all()
    assert not statistics_of(scores).assignments.requires_grad


@pytest.mark.parametrize("loss", ROUTING_LOSSES)
@pytest.mark.parametrize("parts", [[4, 5], [1, 3, 5], [0, 9]])
def test_sums_of_parts_are_the_sums_of_the_whole(
    parts: list[int], loss: Callable[[RoutingStatistics], Tensor]
) -> None:
    scores = torch.randn(9, NUM_EXPERTS, generator=torch.Generator().manual_seed(2)).double()
    weights = torch.linspace(0, 1, 9).double()
    whole = statistics_of(scores, 2, weights)
    pieces = [statistics_of(s, 2, w) for s, w in zip(scores.split(parts), weights.split(parts))]
    added = pieces[0]
    for piece in pieces[1:]:
        added = added + piece
    torch.testing.assert_close(vars(added), vars(whole))
    assert float(loss(added)) == pytest.approx(float(loss(whole)), abs=1e-12)


def test_halting_losses() -> None:
    def halting(tokens: int, depth: float, run: int, possible: int) -> HaltingStatistics:
        sums = (tokens, depth, run, possible, depth / 10)
        return HaltingStatistics(*(torch.tensor(float(x)) for x in sums))

    one, other = halting(2, 5.0, 6, 8), halting(3, 6.0, 7, 12)
    assert float(losses.remainder(one)) == pytest.approx(0.25)
    assert float(losses.remainder(one + other)) == pytest.approx(0.22)
    assert float(losses.expected_depth(one)) == 2.5
    assert float(one.skipped) == pytest.approx(0.25)
    assert float(one.depth) == 3 and float(halting(1, 2.0, 3, 4).depth) == 3
    assert float(losses.expected_depth(one + other)) == pytest.approx(11 / 5)
    assert float((one + other).skipped) == pytest.approx(1 - 13 / 20)
    nothing = halting(0, 0.0, 0, 0)
    assert losses.expected_depth(nothing).isfinite() and nothing.skipped.isfinite()
    assert float(losses.remainder(nothing)) == 0


@pytest.mark.parametrize("loss", ROUTING_LOSSES)
def test_nothing_counted_gives_gradients_of_zero(
    loss: Callable[[RoutingStatistics], Tensor],
) -> None:
    """A batch of padding alone must not spoil the router: terms of weight 0 are added, too."""
    scores = torch.randn(3, NUM_EXPERTS, requires_grad=True)
    value = loss(statistics_of(scores, 2, torch.zeros(3)))
    (gradient,) = torch.autograd.grad(value, scores, allow_unused=True)
    assert float(value) == 0 and (gradient is None or not gradient.any())
