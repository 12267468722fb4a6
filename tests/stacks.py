"""A depth loop compared with its reference: states, losses, statistics and all gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sut_fairseq import losses
from sut_fairseq.modules.stack import Stack, StackOutput
from tests import reference_losses, references
from tests.builders import EMBED_DIM, SOURCE_DIM, build_stack
from tests.comparison import assert_agree, normal
from tests.references import Options

RIGHT = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]]).bool()
LEFT = RIGHT.flip(1)
LOSSES = ("mutual_information", "load_balance", "squared_coefficient_of_variation", "router_z")


def run(stack: Stack, states: Tensor, padding: Tensor, source: Tensor | None = None) -> StackOutput:
    memory = None if source is None else stack.cross_memory(source, LEFT)
    return stack(states, padding, memory)


def assert_agrees(
    options: Options,
    *,
    num_experts: int = 3,
    padding: Tensor = RIGHT,
    cross: bool = False,
    checkpoint: bool = False,
    layout: str = "compact",
    seed: int = 1,
    without_gradient: tuple[str, ...] = (),
) -> references.Result:
    """Compare states, all losses and all gradients; return the reference's result."""
    stack = build_stack(
        options, num_experts, cross=cross, checkpoint=checkpoint, layout=layout, seed=seed
    )
    states = normal(*padding.shape, EMBED_DIM)
    source = normal(*LEFT.shape, SOURCE_DIM, seed=1) if cross else None
    weights = dict(stack.named_parameters())
    output = run(stack, states, padding, source)
    expected = references.stack(weights, options, states, padding, source, LEFT if cross else None)

    ours = {"states": output.states[~padding]}
    theirs = {"states": expected.states[~padding]}
    assert output.routing.keys() == expected.calls.keys()
    for name, calls in expected.calls.items():
        for loss in LOSSES:
            ours[f"{name} {loss}"] = getattr(losses, loss)(output.routing[name])
            theirs[f"{name} {loss}"] = getattr(reference_losses, loss)(calls)
        assert float(output.routing[name].weight) == pytest.approx(sum(c.weight for c in calls))
    if options.alpha_threshold is None and options.act is None:
        assert output.halting is None
    else:
        ours["depth"] = losses.expected_depth(output.halting)
        theirs["depth"] = torch.as_tensor(sum(expected.depths) / len(expected.depths)).double()
        ours["remainder"] = losses.remainder(output.halting)
        theirs["remainder"] = sum(expected.remainders) / len(expected.remainders)
        num_tokens, steps_run = len(expected.steps), sum(expected.steps)
        assert int(output.halting.steps_run) == steps_run
        assert int(output.halting.tokens) == num_tokens == int((~padding).sum())
        assert int(output.halting.steps_possible) == num_tokens * options.num_steps
        share = 1 - steps_run / (num_tokens * options.num_steps)
        assert float(output.halting.skipped) == pytest.approx(share)
    variables = {**weights, "states": states}
    if source is not None:
        variables["source"] = source
    assert_agree(ours, theirs, variables, without_gradient=without_gradient)
    return expected
