"""Halting units against their equations in probability space: SUT Eq. 2-4, NDR Eq. 11-15."""

from __future__ import annotations

import pytest
import torch

from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting
from tests import references
from tests.builders import ACT, EMBED_DIM
from tests.comparison import assert_agree, normal, randomise


@pytest.mark.parametrize("num_steps", [2, 3, 6])
def test_agrees_with_the_equations(num_steps: int) -> None:
    unit = randomise(
        StickBreakingHalting(EMBED_DIM, alpha_threshold=0.6).double(), seed=1, scale=1.0
    )
    states = normal(num_steps, 5, EMBED_DIM)  # h_l of 5 tokens
    weights = dict(unit.named_parameters())
    ours, theirs = {}, {}

    state = unit.start(states[0])
    varied = False
    predictions: list[list[torch.Tensor]] = [[] for _ in range(5)]
    for step in range(num_steps):
        if step > 0:
            state = unit.advance(states[step - 1], state)
            for token in range(5):
                hidden = states[step - 1, token]
                predictions[token].append(references.halt_prediction(weights, hidden))
        halts = [references.halt_probabilities(p) for p in predictions]
        ours[f"expected {step}"] = unit.read_out(states[step], state)
        theirs[f"expected {step}"] = torch.stack(
            [references.expected_state(halts[t], states[: step + 1, t]) for t in range(5)]
        )
        ours[f"remaining {step}"] = state.log_remaining.exp()
        theirs[f"remaining {step}"] = torch.stack(
            [1 - torch.as_tensor(sum(own), dtype=torch.float64) for own in halts]
        )
        halted = [float(torch.as_tensor(sum(own)).detach()) >= 0.6 for own in halts]
        assert unit.halted(state).tolist() == halted
        varied = varied or any(halted) and not all(halted)
    assert varied
    assert_agree(ours, theirs, {**weights, "states": states})


@pytest.mark.parametrize("epsilon", [0.01, 0.3])
@pytest.mark.parametrize("act", ACT)
def test_act_agrees_with_the_equations(act: str, epsilon: float) -> None:
    """After each step: the read-out is what it would be if this step were the last one."""
    unit = randomise(ACT[act](EMBED_DIM, epsilon=epsilon).double(), seed=2, scale=0.8)
    states = normal(6, 5, EMBED_DIM)  # h(0), h(1), ... of 5 tokens
    weights = dict(unit.output.named_parameters())
    ours, theirs, stopped = {}, {}, set()

    state = unit.start(states[0])
    for step in range(1, 6):
        if step > 1:
            state = unit.advance(states[step - 1], state)
        predictions = [
            [references.act_prediction(weights, hidden[token]) for hidden in states]
            for token in range(5)
        ]
        read_outs = [
            getattr(references, act)(
                own[1 : step + 1] if act == "graves" else own[:step],
                states[1 : step + 1, token],
                epsilon,
            )
            for token, own in enumerate(predictions)
        ]
        ours[f"read-out {step}"] = unit.read_out(states[step], state)
        theirs[f"read-out {step}"] = torch.stack([output for output, _, _ in read_outs])
        ours[f"remainder {step}"] = state.remainder
        theirs[f"remainder {step}"] = torch.stack([remainder for *_, remainder in read_outs])
        running = [len(shares) == step for _, shares, _ in read_outs]
        assert (state.remaining > 0).tolist() == running
        stopped.add(sum(running))
        if act == "graves":
            for _, shares, _ in read_outs:
                assert float(sum(shares).detach()) == pytest.approx(1, abs=1e-12)
    assert len(stopped) >= 3, "tokens that differ in their read-out step"
    assert_agree(ours, theirs, {**weights, "states": states})


@pytest.mark.parametrize("bias", [-1e4, -2.0, 0.0, 2.0, 1e4])
def test_weights_of_graves_sum_to_one(bias: float) -> None:
    """Where a coordinate of every state is 1, that of the result is the sum of the weights."""
    unit = randomise(ACT["graves"](EMBED_DIM), seed=3)
    unit.output.bias.data.fill_(bias)
    states = normal(8, 20, EMBED_DIM, dtype=torch.float32).detach()
    states[:, :, 0] = 1
    state = unit.start(states[0])
    for step in range(1, 8):
        total = unit.read_out(states[step], state)[:, 0]
        torch.testing.assert_close(total, torch.ones(20), rtol=1e-6, atol=1e-6)
        state = unit.advance(states[step], state)
