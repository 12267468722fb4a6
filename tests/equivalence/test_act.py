"""The depth loop with adaptive computation time: all columns compute on, results are read out."""

from __future__ import annotations

import math

import pytest
import torch

from sut_fairseq import losses
from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.modules.stack import Stack
from tests import references
from tests.builders import ACT, EMBED_DIM, SOURCE_DIM, build_stack
from tests.combinations import every_pair
from tests.comparison import normal
from tests.models import MIXTURE, batch, sample_of, small_model, task
from tests.references import Options
from tests.stacks import LEFT, RIGHT, assert_agrees, run

UNIT = ("halting.output.weight", "halting.output.bias")


@every_pair(
    act=list(ACT), epsilon=[0.01, 0.4], pre_norm=[False, True], layout=["compact", "masked"]
)
def test_encoder(act: str, epsilon: float, pre_norm: bool, layout: str) -> None:
    options = Options(
        attention_top_k=2,
        ffn_top_k=2,
        positions="window",
        pre_norm=pre_norm,
        num_steps=5,
        act=act,
        epsilon=epsilon,
    )
    expected = assert_agrees(options, padding=LEFT, layout=layout)
    if epsilon == 0.4:
        assert len(set(expected.steps)) >= 2, "sentences that differ in depth"


@pytest.mark.parametrize("layout", ["compact", "masked"])
@pytest.mark.parametrize("act", ACT)
def test_compositional_attention(act: str, layout: str) -> None:
    options = Options(
        num_retrievals=2,
        own_values=True,
        positions="buckets",
        causal=True,
        num_steps=4,
        act=act,
        epsilon=0.4,
    )
    expected = assert_agrees(options, num_experts=1, cross=True, layout=layout, seed=12)
    assert len(set(expected.steps)) >= 2, "sentences that differ in depth"


@every_pair(act=list(ACT), epsilon=[0.01, 0.4], num_experts=[1, 3], layout=["compact", "masked"])
def test_decoder(act: str, epsilon: float, num_experts: int, layout: str) -> None:
    options = Options(
        attention_top_k=min(2, num_experts),
        positions="buckets",
        causal=True,
        num_steps=4,
        act=act,
        epsilon=epsilon,
    )
    expected = assert_agrees(options, num_experts=num_experts, cross=True, layout=layout, seed=12)
    if epsilon == 0.4:
        assert len(set(expected.steps)) >= 2, "sentences that differ in depth"


@pytest.mark.parametrize("layout", ["compact", "masked"])
@pytest.mark.parametrize("act", ACT)
def test_recomputed_activations(act: str, layout: str) -> None:
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=5, act=act, epsilon=0.4)
    expected = assert_agrees(options, cross=True, checkpoint=True, layout=layout)
    assert 1 < max(expected.steps) < 5, "all sentences end before the last step"


@pytest.mark.parametrize("act", ACT)
def test_one_step(act: str) -> None:
    """Graves predicts after a step, so nothing is asked; Dehghani et al. weigh the one step."""
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=1, act=act)
    expected = assert_agrees(options, without_gradient=UNIT if act == "graves" else ())
    assert [float(torch.as_tensor(depth).detach()) for depth in expected.depths] == [1.0] * 7
    assert {float(remainder) for remainder in expected.remainders} == {
        1.0 if act == "graves" else 0.0
    }


def certain(stack: Stack, score: float) -> Stack:
    """Make the halting unit predict sigmoid(score) for every state."""
    stack.halting.output.weight.data.zero_()
    stack.halting.output.bias.data.fill_(score)
    return stack


@pytest.mark.parametrize("act", ACT)
def test_halting_at_once_is_one_step(act: str) -> None:
    stack = certain(build_stack(Options(num_steps=4, act=act, ffn_top_k=2), 3), 1e4)
    states = normal(*RIGHT.shape, EMBED_DIM)
    output = run(stack, states, RIGHT)
    assert float(losses.expected_depth(output.halting).detach()) == 1
    assert float(losses.remainder(output.halting).detach()) == 1
    assert int(output.halting.steps_run) == 7
    fixed = Stack(stack.block, 1)
    assert torch.equal(output.states, fixed(states, RIGHT).states)


@pytest.mark.parametrize("act", ACT)
def test_never_halting(act: str) -> None:
    """Graves: all mass is the last state's. Dehghani et al.: there is no forced stop."""
    stack = certain(build_stack(Options(num_steps=4, act=act, ffn_top_k=2), 3), -1e4)
    states = normal(*RIGHT.shape, EMBED_DIM)
    output = run(stack, states, RIGHT)
    assert float(losses.expected_depth(output.halting).detach()) == 4
    assert float(output.halting.skipped) == 0
    remainder = float(losses.remainder(output.halting).detach())
    if act == "graves":
        assert remainder == 1
        assert torch.equal(output.states, Stack(stack.block, 4)(states, RIGHT).states)
    else:
        assert remainder == 0
        assert not output.states[~RIGHT].any()


def test_known_weights() -> None:
    """p^ = 0.4 at each of 5 steps, epsilon 0.01: A weighs 0.4, 0.4, 0.2; U interpolates."""
    states = normal(*RIGHT.shape, EMBED_DIM)
    for act in ACT:
        stack = certain(build_stack(Options(num_steps=5, act=act), 1), math.log(0.4 / 0.6))
        output = run(stack, states, RIGHT)
        h1, h2, h3 = (Stack(stack.block, n)(states, RIGHT).states for n in (1, 2, 3))
        expected = 0.4 * h1 + 0.4 * h2 + 0.2 * h3
        if act == "dehghani":
            expected = 0.8 * (0.6 * 0.4 * h1 + 0.4 * h2) + 0.2 * h3
        torch.testing.assert_close(output.states[~RIGHT], expected[~RIGHT], rtol=1e-10, atol=1e-10)
        assert float(losses.remainder(output.halting).detach()) == pytest.approx(0.2)
        assert float(losses.expected_depth(output.halting).detach()) == pytest.approx(1.8)
        assert int(output.halting.steps_run) == 7 * 3


@pytest.mark.parametrize("act", ACT)
def test_a_sentence_that_is_done_costs_nothing(act: str) -> None:
    options = Options(attention_top_k=2, ffn_top_k=2, num_steps=6, act=act, epsilon=0.4)
    stack = build_stack(options, 3)
    rows: list[int] = []
    stack.block.feed_forward.register_forward_hook(
        lambda module, inputs, output: rows.append(len(inputs[0]))
    )
    states = normal(*LEFT.shape, EMBED_DIM)
    output = run(stack, states, LEFT)
    steps = references.stack(dict(stack.named_parameters()), options, states, LEFT).steps
    assert rows == [n for n in (sum(own > step for own in steps) for step in range(6)) if n]
    assert rows[0] == 7 > rows[-1] and len(rows) < 6
    assert sum(rows) == int(output.halting.steps_run)
    assert torch.equal(stack(states, LEFT, num_steps=20).states, output.states)


@pytest.mark.parametrize("layout", ["compact", "masked"])
@pytest.mark.parametrize("act", ACT)
def test_padding_and_batch_mates_change_nothing(act: str, layout: str) -> None:
    options = Options(
        attention_top_k=2, ffn_top_k=2, positions="window", num_steps=5, act=act, epsilon=0.4
    )
    stack = build_stack(options, 3, cross=True, layout=layout)
    clean, source = normal(*LEFT.shape, EMBED_DIM), normal(*LEFT.shape, SOURCE_DIM, seed=1)
    states = clean.detach().masked_fill(LEFT.unsqueeze(-1), 1e6).requires_grad_()
    together = run(stack, states, LEFT, source)
    objective = together.states[~LEFT].square().sum() + together.halting.remainder
    (gradient,) = torch.autograd.grad(objective, states)
    assert not gradient[LEFT].any()
    steps_run, remainder = 0, 0.0
    for sentence in range(3):
        kept = ~LEFT[sentence]
        nothing = torch.zeros(1, int(kept.sum()), dtype=torch.bool)
        memory = stack.cross_memory(source[sentence, kept].unsqueeze(0), nothing)
        alone = stack(clean[sentence, kept].unsqueeze(0), nothing, memory)
        torch.testing.assert_close(
            alone.states[0], together.states[sentence, kept], rtol=1e-10, atol=1e-10
        )
        steps_run += int(alone.halting.steps_run)
        remainder += float(alone.halting.remainder.detach())
    assert steps_run == int(together.halting.steps_run) < 7 * 5
    assert remainder == pytest.approx(float(together.halting.remainder.detach()))


@pytest.mark.parametrize("bias", [0.0, 1e4])
@pytest.mark.parametrize("halting", ["act", "act-ut"])
def test_every_parameter_gets_a_gradient(halting: str, bias: float) -> None:
    """Also where all tokens halt at once; DistributedDataParallel waits for each parameter."""
    model = small_model(**MIXTURE, encoder_halting=halting, decoder_halting=halting).train()
    for side in (model.encoder, model.decoder):
        side.stack.halting.output.bias.data.fill_(bias)
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights={"remainder": 0.03})
    loss, sample_size, log = criterion(model, sample_of(batch()))
    if bias:
        assert log["remainder_loss"] == 2 * sample_size, "each stack's mean remainder is 1"
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("halting", ["act", "act-ut"])
def test_autocast_keeps_the_sums_in_float32(halting: str) -> None:
    kinds = dict(encoder_halting=halting, decoder_halting=halting)
    model = small_model(**MIXTURE, **kinds, dtype=torch.float32).train()
    with torch.autocast("cpu", torch.bfloat16):
        scores, extra = model(**batch())
    sums = [total for side in extra["halting"].values() for total in vars(side).values()]
    assert {total.dtype for total in sums} == {torch.float32}
    (scores.float().square().sum() + sum(sums)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
