"""The router: precision, sampling, determinism, gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from sut_fairseq import losses
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.statistics import RouterCalls, route_statistics
from tests.comparison import normal, randomise


def router_of(scores: Tensor, top_k: int, **options: bool) -> Router:
    """A router that gives every token these scores."""
    router = Router(2, len(scores), top_k, **options)
    router.input.weight.data.zero_()
    router.input.bias.data.fill_(100.0)  # tanh is 1
    router.output.weight.data = (scores / 2).unsqueeze(1).expand(-1, 2).clone()
    return router


@pytest.mark.parametrize("top_k, num_experts", [(0, 4), (5, 4), (-1, 4)])
def test_impossible_top_k(top_k: int, num_experts: int) -> None:
    with pytest.raises(ValueError, match=r"`top_k` must be between 1 and `num_experts` \(4\), but"):
        Router(8, num_experts, top_k)


def test_keeps_and_renormalises_the_most_probable() -> None:
    probabilities = torch.tensor([0.1, 0.4, 0.2, 0.3])
    routing = router_of(probabilities.log(), 2)(torch.zeros(1, 2))
    assert routing.expert_indices.tolist() == [[1, 3]]
    torch.testing.assert_close(routing.expert_weights, torch.tensor([[4 / 7, 3 / 7]]))
    statistics = route_statistics([routing.calls])
    torch.testing.assert_close(statistics.probability, probabilities)
    torch.testing.assert_close(statistics.gate, torch.tensor([0, 4 / 7, 0, 3 / 7]))
    assert statistics.assignments.tolist() == [0, 1, 0, 1]
    assert float(statistics.weight) == 1
    assert float(statistics.squared_log_partition.detach()) == pytest.approx(0, abs=1e-12)


def test_tokens_with_fewer_experts_than_others() -> None:
    """As when experts choose their tokens; what stands in the place of an expert is not counted."""
    scores, none = normal(3, 2), 2
    indices = torch.tensor([[0, 1], [1, none], [none, none]])
    weights = torch.tensor([[0.75, 0.25], [1.0, 0.0], [0.0, 0.0]]).double()
    statistics = route_statistics([RouterCalls(scores, indices, weights, None)])
    assert statistics.assignments.tolist() == [1, 2]
    assert statistics.gate.tolist() == [0.75, 1.25]
    assert statistics.probability.shape == (2,) and float(statistics.weight) == 3


@pytest.mark.parametrize("top_k", [1, 2])
def test_one_expert_for_each_token_teaches_the_router_nothing(top_k: int) -> None:
    """Nor does the load variation then; the other losses do."""
    router = randomise(Router(8, 5, top_k)).double()
    weights, calls = router(normal(6, 8))[1:]
    statistics = route_statistics([calls])

    def teaches(value: Tensor) -> bool:
        (gradient,) = torch.autograd.grad(value, router.output.weight, retain_graph=True)
        return bool(gradient.any())

    assert teaches((weights * normal(6, top_k)).sum()) == (top_k > 1)
    assert teaches(losses.squared_coefficient_of_variation(statistics)) == (top_k > 1)
    for loss in (losses.mutual_information, losses.load_balance, losses.router_z):
        assert teaches(loss(statistics))


@pytest.mark.parametrize("autocast", [False, True])
def test_softmax_and_statistics_in_float32(autocast: bool) -> None:
    """bfloat16 has 8 bits: a softmax or a sum of 3000 tokens in it would be far off."""
    router = randomise(Router(8, 5, 2))
    states = normal(3000, 8, dtype=torch.float32).detach()
    if not autocast:
        router, states = router.bfloat16(), states.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        routing = router(states)
        scores = router.output(torch.tanh(router.input(states)))
    assert scores.dtype == torch.bfloat16
    assert routing.expert_weights.dtype == states.dtype
    probabilities = scores.double().softmax(-1)
    statistics = route_statistics([routing.calls])
    assert {getattr(statistics, name).dtype for name in vars(statistics)} == {torch.float32}
    torch.testing.assert_close(
        statistics.probability.double(), probabilities.sum(0), rtol=1e-5, atol=1e-3
    )
    assert float(statistics.assignments.sum()) == 6000
    entropy = (probabilities * probabilities.log()).sum()
    assert float(statistics.negative_entropy.detach()) == pytest.approx(
        float(entropy.detach()), rel=1e-5
    )


def test_float64_stays_float64() -> None:
    router = randomise(Router(8, 5, 2)).double()
    routing = router(normal(3, 8))
    assert routing.expert_weights.dtype == torch.float64
    assert route_statistics([routing.calls]).negative_entropy.dtype == torch.float64


def test_sampling_draws_without_replacement() -> None:
    """P(i then j) = p_i p_j / (1 - p_i): the frequency of each pair, and of each order of it."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    router = router_of(p.log(), 2, sample=True).train()
    torch.manual_seed(0)
    num_draws = 40_000
    routing = router(torch.zeros(num_draws, 2))
    drawn = routing.expert_indices
    assert (drawn[:, 0] != drawn[:, 1]).all()
    for i, j in itertools.permutations(range(4), 2):
        expected = float(p[i] * p[j] / (1 - p[i]))
        found = float(((drawn[:, 0] == i) & (drawn[:, 1] == j)).float().mean())
        assert abs(found - expected) < 4 * (expected * (1 - expected) / num_draws) ** 0.5
    # The weights are those of g itself, without the noise that chose the experts.
    chosen = p[drawn]
    expected_weights = chosen / chosen.sum(1, keepdim=True)
    torch.testing.assert_close(routing.expert_weights, expected_weights)


def test_evaluation_does_not_sample() -> None:
    router = router_of(torch.tensor([0.3, 0.2, 0.1, 0.0]), 2, sample=True).eval()
    state = torch.random.get_rng_state()
    assert (router(torch.zeros(500, 2)).expert_indices == torch.tensor([0, 1])).all()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_training_without_sampling_takes_the_best() -> None:
    router = router_of(torch.tensor([0.3, 0.2, 0.1, 0.0]), 2).train()
    assert (router(torch.zeros(500, 2)).expert_indices == torch.tensor([0, 1])).all()


def test_same_seed_same_choice() -> None:
    router = router_of(torch.zeros(6), 3, sample=True).train()
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(router(torch.zeros(50, 2)).expert_indices)
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_router_dropout_acts_in_training_only() -> None:
    router = randomise(Router(8, 4, 2, dropout=0.5))
    states = normal(20, 8, dtype=torch.float32)
    noisy = router.train()(states).expert_weights
    quiet = router.eval()(states).expert_weights
    assert not torch.equal(noisy, quiet)
    assert torch.equal(quiet, router(states).expert_weights)


@pytest.mark.parametrize("sample", [False, True])
def test_gradient_reaches_the_router_through_its_weights(sample: bool) -> None:
    router = randomise(Router(8, 4, 2, sample=sample)).train()
    routing = router(normal(6, 8, dtype=torch.float32))
    routing.expert_weights[:, 0].sum().backward()
    for name, parameter in router.named_parameters():
        assert parameter.grad.abs().max() > 0, name


def test_a_single_choice_has_weight_one() -> None:
    """Renormalised, g of the only choice is 1: only auxiliary losses teach such a router."""
    router = randomise(Router(8, 4, 1))
    routing = router(normal(6, 8, dtype=torch.float32))
    assert torch.equal(routing.expert_weights, torch.ones(6, 1))
    route_statistics([routing.calls]).negative_entropy.backward()
    assert router.output.weight.grad.abs().max() > 0
