"""Stick-breaking halting against SUT Eq. 2-4 in probability space."""

from __future__ import annotations

import pytest
import torch

from sut_fairseq.modules.halting import StickBreakingHalting
from tests import references
from tests.builders import EMBED_DIM
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
