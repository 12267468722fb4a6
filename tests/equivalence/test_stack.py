"""The depth loop with halting: skipping tokens equals computing all of them and masking."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from sut_fairseq import losses
from sut_fairseq.modules.halting.fixed_depth import FixedDepth
from sut_fairseq.modules.stack import Stack
from tests import references
from tests.builders import EMBED_DIM, SOURCE_DIM, build_stack
from tests.combinations import every_pair
from tests.comparison import normal
from tests.references import Options
from tests.stacks import LEFT, RIGHT, assert_agrees, run

THRESHOLDS = [None, 0.999, 0.7, 0.5, 0.3]
BOTH = [False, True]
LAYOUTS = ["compact", "masked"]


@every_pair(alpha_threshold=THRESHOLDS, pre_norm=BOTH, layout=LAYOUTS)
def test_encoder(alpha_threshold: float | None, pre_norm: bool, layout: str) -> None:
    options = Options(
        attention_top_k=2,
        ffn_top_k=2,
        positions="window",
        pre_norm=pre_norm,
        num_steps=4,
        alpha_threshold=alpha_threshold,
    )
    expected = assert_agrees(options, padding=LEFT, layout=layout)
    assert_halting_varies(expected, alpha_threshold)


@every_pair(alpha_threshold=THRESHOLDS, num_experts=[1, 3], layout=LAYOUTS)
def test_decoder(alpha_threshold: float | None, num_experts: int, layout: str) -> None:
    options = Options(
        attention_top_k=min(2, num_experts),
        ffn_top_k=1,
        positions="buckets",
        causal=True,
        num_steps=4,
        alpha_threshold=alpha_threshold,
    )
    expected = assert_agrees(options, num_experts=num_experts, cross=True, layout=layout, seed=6)
    assert_halting_varies(expected, alpha_threshold)


@torch.no_grad()
@pytest.mark.parametrize("alpha_threshold", [0.999, 0.7, 0.5, 0.3])
def test_single_precision(alpha_threshold: float) -> None:
    """Skipping equals masking in the precision of ordinary training, too."""
    options = Options(
        attention_top_k=2,
        ffn_top_k=2,
        positions="window",
        num_steps=4,
        alpha_threshold=alpha_threshold,
    )
    stack = build_stack(options, 3, seed=2).float()
    states = normal(*LEFT.shape, EMBED_DIM).float()
    output = run(stack, states, LEFT)
    weights = {name: parameter.double() for name, parameter in stack.named_parameters()}
    expected = references.stack(weights, options, states.double(), LEFT)
    assert int(output.halting.steps_run) == sum(expected.steps)
    torch.testing.assert_close(
        output.states.double()[~LEFT], expected.states[~LEFT], rtol=1e-5, atol=1e-5
    )


def assert_halting_varies(expected: references.Result, alpha_threshold: float | None) -> None:
    """Guard against an example in which nothing halts, or everything at once."""
    if alpha_threshold is None:
        assert set(expected.steps) == {4}
    elif alpha_threshold < 0.9:
        assert len(set(expected.steps)) >= 2


@every_pair(alpha_threshold=[None, 0.7, 0.5], causal=BOTH, own_values=BOTH, layout=LAYOUTS)
def test_compositional_attention(
    alpha_threshold: float | None, causal: bool, own_values: bool, layout: str
) -> None:
    """In both attentions of a decoder, or an encoder's one."""
    options = Options(
        num_retrievals=2,
        own_values=own_values,
        positions="window",
        causal=causal,
        num_steps=4,
        alpha_threshold=alpha_threshold,
    )
    expected = assert_agrees(options, num_experts=1, cross=causal, layout=layout, seed=6)
    assert_halting_varies(expected, alpha_threshold)


@pytest.mark.parametrize("layout", ["compact", "masked"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_more_steps_and_recomputed_activations(checkpoint: bool, layout: str) -> None:
    options = Options(attention_top_k=2, ffn_top_k=2, causal=True, num_steps=7, alpha_threshold=0.8)
    expected = assert_agrees(options, cross=True, checkpoint=checkpoint, layout=layout, seed=4)
    assert len(set(expected.steps)) >= 3


def test_one_step_needs_no_halting_unit() -> None:
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=1, alpha_threshold=0.5)
    unused = ("halting.input.weight", "halting.input.bias", "halting.output.weight")
    expected = assert_agrees(options, without_gradient=unused)
    assert set(expected.steps) == {1}
    assert [float(depth) for depth in expected.depths] == [1.0] * 7


def stubborn(stack: Stack, score: float) -> Stack:
    """Make the halting unit give every token the same score for halting, whatever its state."""
    stack.halting.input.weight.data.zero_()
    stack.halting.input.bias.data.fill_(1.0)
    stack.halting.output.weight.data[0] = score
    stack.halting.output.weight.data[1] = 0.0
    return stack


def test_halting_that_never_fires_is_a_fixed_depth() -> None:
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=4, alpha_threshold=0.3)
    stack = stubborn(build_stack(options, 3), -1e4)
    states = normal(*RIGHT.shape, EMBED_DIM)
    halting = run(stack, states, RIGHT)
    stack.halting = FixedDepth()
    fixed = run(stack, states, RIGHT)
    assert torch.equal(halting.states, fixed.states)
    for name, sums in fixed.routing.items():
        torch.testing.assert_close(vars(halting.routing[name]), vars(sums), rtol=0, atol=0)
    assert float(losses.expected_depth(halting.halting).detach()) == 4
    assert float(halting.halting.skipped) == 0
    assert fixed.halting is None


@pytest.mark.parametrize("alpha_threshold", [0.001, 0.999, 1.0])
def test_halting_at_once_is_one_step(alpha_threshold: float) -> None:
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=4, alpha_threshold=alpha_threshold)
    stack = stubborn(build_stack(options, 3), 1e4)
    states = normal(*RIGHT.shape, EMBED_DIM)
    output = run(stack, states, RIGHT)
    assert float(losses.expected_depth(output.halting).detach()) == 1
    assert int(output.halting.steps_run) == int(output.halting.tokens) == 7
    objective = output.states.square().sum() + output.halting.expected_depth
    for gradient in torch.autograd.grad(objective, list(stack.parameters()), allow_unused=True):
        assert gradient is None or gradient.isfinite().all()
    stack.num_steps = 1
    assert torch.equal(output.states, run(stack, states, RIGHT).states)


def test_halted_tokens_are_frozen() -> None:
    """Once all have halted, more steps change neither states nor routing statistics."""
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=9, alpha_threshold=0.3)
    stack = build_stack(options, 3, seed=3)
    states = normal(*RIGHT.shape, EMBED_DIM)
    outputs = []
    for stack.num_steps in (9, 20):
        outputs.append(run(stack, states, RIGHT))
    assert outputs[0].halting.steps_run < 7 * 9
    assert outputs[0].halting.steps_run == outputs[1].halting.steps_run
    assert torch.equal(outputs[0].states, outputs[1].states)
    for name, sums in outputs[0].routing.items():
        torch.testing.assert_close(vars(outputs[1].routing[name]), vars(sums), rtol=0, atol=0)


def test_halted_tokens_cost_nothing() -> None:
    """Count the rows that reach each part of the block."""
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=5, alpha_threshold=0.6)
    stack = build_stack(options, 3, cross=True, seed=4)
    rows: dict[str, int] = {}
    block = stack.block
    parts = {
        "router": block.self_attention.router,
        "query": block.self_attention.query,
        "key": block.self_attention.key,
        "cross query": block.cross_attention.query,
        "cross key": block.cross_attention.key,
        "feed-forward": block.feed_forward,
        "experts": block.feed_forward.input,
        "norm": block.feed_forward_norm,
        "halting": stack.halting.input,
    }
    for name, module in parts.items():

        def count(module: torch.nn.Module, inputs: tuple, output: object, name: str = name) -> None:
            rows[name] = rows.get(name, 0) + len(inputs[0])

        module.register_forward_hook(count)
    states = normal(*RIGHT.shape, EMBED_DIM)
    source = normal(*LEFT.shape, SOURCE_DIM, seed=1)
    run(stack, states, RIGHT, source)
    weights = dict(stack.named_parameters())
    steps = references.stack(weights, options, states, RIGHT, source, LEFT).steps
    assert len(set(steps)) >= 3
    ran = [sum(own >= step for own in steps) for step in range(1, options.num_steps + 1)]
    # Keys and values are computed of the input, and after a step, while the sentence goes on.
    sentences = [steps[:4], steps[4:6], steps[6:]]
    updated = 7 + sum(min(own, max(tokens) - 1) for tokens in sentences for own in tokens)
    assert rows == {
        "router": sum(ran),
        "query": sum(ran),
        "key": updated,
        "cross query": sum(ran),
        "cross key": 7,
        "feed-forward": sum(ran),
        "experts": sum(ran),
        "norm": sum(ran),
        "halting": sum(ran[:-1]),
    }


@pytest.mark.parametrize("pre_norm", [False, True])
def test_what_lies_in_padding_changes_nothing(pre_norm: bool) -> None:
    options = Options(
        attention_top_k=2, ffn_top_k=2, pre_norm=pre_norm, num_steps=4, alpha_threshold=0.6
    )
    stack = build_stack(options, 3, cross=True, seed=3)
    clean = normal(*RIGHT.shape, EMBED_DIM)
    source = normal(*LEFT.shape, SOURCE_DIM, seed=1)
    results = []
    for garbage in (0.0, 1e6):
        states = clean.detach().masked_fill(RIGHT.unsqueeze(-1), garbage).requires_grad_()
        encoded = source.detach().masked_fill(LEFT.unsqueeze(-1), -garbage).requires_grad_()
        output = run(stack, states, RIGHT, encoded)
        real = output.states[~RIGHT]
        objective = real.square().sum() + output.halting.expected_depth
        for sums in output.routing.values():
            objective = objective + sums.negative_entropy
        gradients = torch.autograd.grad(objective, [states, encoded, *stack.parameters()])
        assert not gradients[0][RIGHT].any() and not gradients[1][LEFT].any()
        results.append([real, objective, *gradients])
    for one, other in zip(*results):
        assert torch.equal(one, other)


def test_a_sentence_is_computed_as_if_it_were_alone() -> None:
    """Batch-mates that halt earlier or later, and their widths, change nothing."""
    options = Options(
        attention_top_k=2, ffn_top_k=2, positions="window", num_steps=5, alpha_threshold=0.6
    )
    stack = build_stack(options, 3, cross=True)
    states, source = normal(*LEFT.shape, EMBED_DIM), normal(*LEFT.shape, SOURCE_DIM, seed=1)
    together = run(stack, states, LEFT, source)
    steps_run = 0
    for sentence in range(3):
        kept = ~LEFT[sentence]
        length = int(kept.sum())
        nothing = torch.zeros(1, length, dtype=torch.bool)
        memory = stack.cross_memory(source[sentence, kept].unsqueeze(0), nothing)
        alone = stack(states[sentence, kept].unsqueeze(0), nothing, memory)
        torch.testing.assert_close(
            alone.states[0], together.states[sentence, kept], rtol=1e-10, atol=1e-10
        )
        steps_run += int(alone.halting.steps_run)
    assert steps_run == int(together.halting.steps_run) < 7 * 5


@pytest.mark.parametrize("halting", [{}, dict(alpha_threshold=0.6), dict(act="graves")])
def test_another_number_of_steps_for_a_call(halting: dict[str, Any]) -> None:
    stack = build_stack(Options(ffn_top_k=2, num_steps=3, **halting), 3)
    states = normal(*RIGHT.shape, EMBED_DIM)
    for num_steps in (1, 2, 6):
        ours = stack(states, RIGHT, num_steps=num_steps)
        stack.num_steps, own = num_steps, stack.num_steps
        theirs = run(stack, states, RIGHT)
        stack.num_steps = own
        assert torch.equal(ours.states, theirs.states)
        assert ours.halting == theirs.halting
    with pytest.raises(ValueError, match="`num_steps` must be at least 1, but is 0 instead."):
        stack(states, RIGHT, num_steps=0)


def test_a_batch_of_padding_only_stays_as_it_is() -> None:
    stack = build_stack(Options(num_steps=3, alpha_threshold=0.5), 1)
    states = normal(2, 3, EMBED_DIM)
    output = stack(states, torch.ones(2, 3, dtype=torch.bool))
    assert torch.equal(output.states, states)
    assert not output.routing


@pytest.mark.parametrize(
    ("mask", "given"),
    [
        (RIGHT.long(), "torch.int64 of the size (3, 4)"),
        (RIGHT.t(), "torch.bool of the size (4, 3)"),
        (RIGHT[:1], "torch.bool of the size (1, 4)"),
    ],
)
def test_masks_that_would_give_wrong_results(mask: torch.Tensor, given: str) -> None:
    stack = build_stack(Options(), 1, cross=True)
    states = normal(3, 4, EMBED_DIM)
    expected = f"a bool tensor of the size (3, 4) of the states' grid, but is a tensor of {given}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        stack(states, mask)
    with pytest.raises(ValueError, match=re.escape(expected)):
        stack.cross_memory(normal(3, 4, SOURCE_DIM), mask)
