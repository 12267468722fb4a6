"""The halting units: allowed thresholds, first prediction, precision."""

from __future__ import annotations

import math

import pytest
import torch

from sut_fairseq.modules.halting.fixed_depth import FixedDepth
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting
from sut_fairseq.modules.tokens import ActiveTokens
from tests.builders import ACT
from tests.comparison import normal, randomise


@pytest.mark.parametrize("alpha_threshold", [0, -0.1, 1.0001, 2, math.nan])
def test_thresholds_outside_the_interval_are_refused(alpha_threshold: float) -> None:
    message = "`alpha_threshold` must be greater than 0, at most 1, but is"
    with pytest.raises(ValueError, match=message):
        StickBreakingHalting(4, alpha_threshold=alpha_threshold)


@pytest.mark.parametrize("alpha_threshold", [1e-6, 0.5, 1, 1.0])
def test_thresholds_inside_the_interval_are_taken(alpha_threshold: float) -> None:
    unit = StickBreakingHalting(4, alpha_threshold=alpha_threshold)
    assert f"alpha_threshold={alpha_threshold}" in repr(unit)


def test_predicts_one_half_before_training() -> None:
    """a_1 = 1/2, a_2 = 1/4, ...: 0.75 is reached after two predictions, and 0.76 after three."""
    states = normal(3, 4, dtype=torch.float32)
    for alpha_threshold, needed in ((0.5, 1), (0.75, 2), (0.76, 3), (0.999, 10)):
        unit = StickBreakingHalting(4, alpha_threshold=alpha_threshold)
        state = unit.start(states)
        assert not unit.halted(state).any()
        for step in range(1, needed + 1):
            state = unit.advance(states, state)
            remaining = torch.full((3,), 0.5**step)
            torch.testing.assert_close(state.log_remaining.exp(), remaining)
            assert unit.halted(state).all() == (step == needed)
            # The same state at every step: its expectation is that state.
            torch.testing.assert_close(unit.read_out(states, state), states)


def test_only_the_last_layer_starts_at_zero() -> None:
    unit = StickBreakingHalting(4, alpha_threshold=0.5)
    assert not unit.output.weight.any()
    assert unit.output.bias is None
    assert unit.input.weight.any()
    unit.advance(normal(3, 4, dtype=torch.float32), unit.start(torch.zeros(3, 4))).log_remaining[
        0
    ].backward()
    assert unit.output.weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_remaining_mass_is_kept_in_float32_or_better(dtype: torch.dtype) -> None:
    unit = randomise(StickBreakingHalting(4, alpha_threshold=0.999)).to(dtype)
    states = normal(3, 4, dtype=dtype)
    state = unit.advance(states, unit.start(states))
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    assert state.log_remaining.dtype == state.accumulated.dtype == exact
    assert unit.read_out(states, state).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_without_halting_too(dtype: torch.dtype) -> None:
    state = FixedDepth().start(normal(3, 4, dtype=dtype))
    masses = torch.float64 if dtype == torch.float64 else torch.float32
    assert state.remaining.dtype == state.remainder.dtype == masses
    assert state.remaining.tolist() == [1, 1, 1] and state.remainder.tolist() == [0, 0, 0]


@pytest.mark.parametrize("score", [-1e4, -60.0, 60.0, 1e4])
def test_extreme_predictions_stay_finite(score: float) -> None:
    unit = StickBreakingHalting(4, alpha_threshold=1.0)
    unit.input.bias.data.fill_(1.0)
    unit.input.weight.data.zero_()
    unit.output.weight.data[0] = score
    states = normal(2, 4, dtype=torch.float32)
    state = unit.start(states)
    for _ in range(30):
        state = unit.advance(states, state)
    assert state.log_remaining.isfinite().all()
    assert (unit.halted(state) == (score > 0)).all()
    (unit.read_out(states, state).sum() + state.log_remaining.exp().sum()).backward()
    for parameter in (states, *unit.parameters()):
        assert parameter.grad.isfinite().all()


def test_small_masses_near_the_threshold_are_told_apart() -> None:
    """1 - sum of a is kept as a logarithm: after 40 halvings nothing is lost to cancellation."""
    unit = StickBreakingHalting(4, alpha_threshold=1.0)
    states = normal(1, 4, dtype=torch.float32)
    state = unit.start(states)
    for _ in range(40):
        state = unit.advance(states, state)
    assert float(state.log_remaining.detach()) == pytest.approx(-40 * math.log(2), rel=1e-6)


def test_small_probabilities_of_halting_are_rounded_once() -> None:
    """In bfloat16 a logarithm near -20 is a multiple of 1/8: an error of up to 6 %."""
    unit = StickBreakingHalting(4, alpha_threshold=1.0).bfloat16()  # predicts 1/2
    states = torch.ones(1, 4, dtype=torch.bfloat16)
    state = unit.start(states)._replace(log_remaining=torch.tensor([-20.0]))
    (found,) = unit.advance(states, state).accumulated.tolist()
    assert found == pytest.approx([0.5 * math.exp(-20)] * 4, rel=2**-8)


@pytest.mark.parametrize("name", ["stick-breaking", *ACT])
def test_the_mean_of_many_equal_states_is_that_state(name: str) -> None:
    """Summed in bfloat16, the shares of 100 steps would be up to 7 % off."""
    halting = ACT[name](4) if name in ACT else StickBreakingHalting(4, alpha_threshold=0.999)
    for parameter in halting.parameters():
        parameter.data.zero_()
    if isinstance(halting, StickBreakingHalting):
        halting.input.bias.data.fill_(1.0)
        halting.output.weight.data[0].fill_(-1.0)  # predicts 0.033
    else:
        halting.output.bias.data.fill_(-5.0)  # predicts 0.0067
    states = normal(8, 4, dtype=torch.bfloat16)
    state = halting.bfloat16().start(states)
    for _ in range(100):
        state = halting.advance(states, state)
    # Dehghani's result is interpolated from 0.
    share = 1 - (1 - 1 / (1 + math.exp(5))) ** 101 if name == "dehghani" else 1.0
    result = halting.read_out(states, state).float() / share
    torch.testing.assert_close(result, states.float(), rtol=2**-7, atol=0)


def test_dropout_acts_in_training_only() -> None:
    unit = randomise(StickBreakingHalting(8, alpha_threshold=0.5, dropout=0.5))
    states = normal(6, 8, dtype=torch.float32)
    quiet = unit.eval().advance(states, unit.start(states)).log_remaining
    assert torch.equal(quiet, unit.advance(states, unit.start(states)).log_remaining)
    assert not torch.equal(quiet, unit.train().advance(states, unit.start(states)).log_remaining)


def test_selecting_keeps_what_belongs_to_a_token() -> None:
    unit = randomise(StickBreakingHalting(4, alpha_threshold=0.9))
    states = normal(5, 4, dtype=torch.float32)
    state = unit.advance(states, unit.start(states))
    chosen = torch.tensor([0, 3])
    onward = unit.advance(states[chosen], state.select(chosen))
    everyone = unit.advance(states, state)
    torch.testing.assert_close(onward.log_remaining, everyone.log_remaining[chosen])
    torch.testing.assert_close(onward.accumulated, everyone.accumulated[chosen])


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, 1.5, math.nan])
@pytest.mark.parametrize("act", ACT)
def test_epsilons_outside_the_interval_are_refused(act: str, epsilon: float) -> None:
    message = "`halting_epsilon` must be greater than 0, less than 1, but is"
    with pytest.raises(ValueError, match=message):
        ACT[act](4, epsilon=epsilon)


def test_the_default_epsilon_is_that_of_the_paper() -> None:
    assert all("epsilon=0.01" in repr(unit(4)) for unit in ACT.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("act", ACT)
def test_masses_of_act_are_kept_in_float32_or_better(act: str, dtype: torch.dtype) -> None:
    unit = randomise(ACT[act](4)).to(dtype)
    states = normal(3, 4, dtype=dtype)
    state = unit.advance(states, unit.start(states))
    masses = torch.float64 if dtype == torch.float64 else torch.float32
    assert {values.dtype for values in state} == {masses}
    assert unit.read_out(states, state).dtype == dtype


@pytest.mark.parametrize("act", ACT)
def test_predictions_of_act_are_not_rounded(act: str) -> None:
    """In bfloat16 the sigmoid of 4 is 0.980, which leaves 8 % more than 1 - 0.982."""
    unit = ACT[act](4)
    unit.output.weight.data.zero_()
    unit.output.bias.data.fill_(4.0)
    states = normal(3, 4, dtype=torch.bfloat16)
    state = unit.bfloat16().advance(states, unit.start(states))
    rest = 1 / (1 + math.exp(4))
    assert state.remaining.tolist() == pytest.approx([rest] * 3, rel=1e-4)


@pytest.mark.parametrize("act", ACT)
def test_act_stops_where_the_sum_is_reached(act: str) -> None:
    """A prediction of 1/2 is 1 - epsilon, not less: it takes all."""
    for epsilon, left in ((0.5, 0.0), (0.499, 0.5)):
        unit = ACT[act](4, epsilon=epsilon)
        unit.output.weight.data.zero_()
        unit.output.bias.data.zero_()
        states = normal(3, 4, dtype=torch.float32)
        state = unit.advance(states, unit.start(states))
        assert state.remaining.tolist() == [left] * 3


@pytest.mark.parametrize("kind", [*ACT, "stick-breaking"])
def test_never_halting_whatever_is_predicted(kind: str) -> None:
    unit = ACT[kind](4) if kind in ACT else StickBreakingHalting(4, alpha_threshold=0.5)
    randomise(unit)
    unit.never_halt()
    tokens = ActiveTokens.from_mask(torch.ones(9, 1, dtype=torch.bool))
    states = 1e3 * normal(9, 4, dtype=torch.float32)
    state = unit.start(states)
    for _ in range(30):
        state = unit.advance(states, state)
        assert unit.computed(state, tokens, decoding=False).all()


@pytest.mark.parametrize("score", [-1e4, -60.0, 60.0, 1e4])
@pytest.mark.parametrize("act", ACT)
def test_extreme_predictions_of_act_stay_finite(act: str, score: float) -> None:
    unit = ACT[act](4)
    unit.output.bias.data.fill_(score)
    states = normal(2, 4, dtype=torch.float32)
    state = unit.start(states)
    for _ in range(30):
        state = unit.advance(states, state)
    assert ((state.remaining > 0) == (score < 0)).all()
    (unit.read_out(states, state).sum() + state.remainder.sum()).backward()
    for parameter in (states, *unit.parameters()):
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("layout", ["compact", "masked"])
@pytest.mark.parametrize("act", ACT)
def test_act_computes_whole_sentences(act: str, layout: str) -> None:
    """A token goes on until its sentence is done; in incremental decoding it always does."""
    unit = ACT[act](4)
    exists = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    remaining = torch.tensor([[0.0, 0.5, 0.0], [0.0, 0.0, 0.7], [0.2, 0.0, 0.0]])  # 0.7: padding
    tokens = ActiveTokens.from_mask(exists, layout)
    kept = exists.flatten() if layout == "compact" else torch.ones(9, dtype=torch.bool)
    state = unit.start(torch.zeros(9, 4))._replace(remaining=remaining.flatten())
    state = state.select(kept.nonzero().squeeze(1))
    expected = torch.tensor([[True] * 3, [False] * 3, [True] * 3]).flatten()[kept]
    assert torch.equal(unit.computed(state, tokens, decoding=False), expected)
    assert unit.computed(state, tokens, decoding=True) is None  # all


@pytest.mark.parametrize("act", ACT)
def test_selecting_keeps_what_act_knows_of_a_token(act: str) -> None:
    unit = randomise(ACT[act](4, epsilon=0.4))
    states = normal(5, 4, dtype=torch.float32)
    state = unit.advance(states, unit.start(states))
    chosen = torch.tensor([0, 3])
    onward = unit.advance(states[chosen], state.select(chosen))
    for ours, theirs in zip(onward, unit.advance(states, state)):
        torch.testing.assert_close(ours, theirs[chosen])
