"""The depth loop with halting: skipping tokens equals computing all of them and masking."""

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
    tolerance: float = 1e-10,
) -> references.Result:
    """Compare states, all losses and all gradients; return what the reference did."""
    stack = build_stack(options, num_experts, cross=cross, checkpoint=checkpoint)
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
    if options.alpha_threshold is None:
        assert output.halting is None
    else:
        ours["depth"] = losses.expected_depth(output.halting)
        theirs["depth"] = torch.as_tensor(sum(expected.depths) / len(expected.depths))
        assert int(output.halting.steps_run) == expected.steps_run
        assert int(output.halting.tokens) == int((~padding).sum()) == len(expected.depths)
        assert int(output.halting.steps_possible) == len(expected.depths) * options.num_steps
        share = 1 - expected.steps_run / (len(expected.depths) * options.num_steps)
        assert float(losses.skipped_share(output.halting)) == pytest.approx(share)
    variables = {**weights, "states": states}
    if source is not None:
        variables["source"] = source
    without = [
        name
        for name in weights
        if name.startswith("halting") and options.num_steps == 1
        # A token's keys and queries all share one shift of the scores: no gradient for it.
    ]
    assert_agree(ours, theirs, variables, tolerance=tolerance, without_gradient=without)
    return expected


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("alpha_threshold", [None, 0.999, 0.7, 0.5, 0.3])
def test_encoder(alpha_threshold: float | None, pre_norm: bool) -> None:
    options = Options(
        attention_top_k=2,
        ffn_top_k=2,
        positions="window",
        pre_norm=pre_norm,
        num_steps=4,
        alpha_threshold=alpha_threshold,
    )
    expected = assert_agrees(options, padding=LEFT)
    assert_halts_at_different_steps(expected, options)


@pytest.mark.parametrize("num_experts", [1, 3])
@pytest.mark.parametrize("alpha_threshold", [None, 0.999, 0.7, 0.5, 0.3])
def test_decoder(alpha_threshold: float | None, num_experts: int) -> None:
    options = Options(
        attention_top_k=min(2, num_experts),
        ffn_top_k=1,
        positions="buckets",
        causal=True,
        num_steps=4,
        alpha_threshold=alpha_threshold,
    )
    expected = assert_agrees(options, num_experts=num_experts, cross=True)
    assert_halts_at_different_steps(expected, options)


def assert_halts_at_different_steps(expected: references.Result, options: Options) -> None:
    """Guard against an example in which nothing halts, or everything at once."""
    threshold = options.alpha_threshold
    possible = 7 * options.num_steps
    if threshold is None or threshold > 0.99:
        assert expected.steps_run <= possible
    else:
        assert 7 + 2 < expected.steps_run < possible - 2
        assert len({round(float(depth), 3) for depth in expected.depths}) > 4
