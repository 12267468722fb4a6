"""The data router, geometric attention and copy gate: equations, known values, and limits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.distributions.geometric import geometric, geometric_to_the_left
from sut_fairseq.modules.attention.positions.transformer_xl import TransformerXLPositions
from sut_fairseq.modules.block import DataRouterBlock
from sut_fairseq.modules.copy_gate import CopyGate
from tests import references
from tests.builders import EMBED_DIM, build_stack
from tests.comparison import normal
from tests.references import Options
from tests.stacks import LEFT, RIGHT, assert_agrees, run

NDR: dict[str, Any] = dict(block="data-router", distribution="geometric", positions="direction")


@pytest.mark.parametrize(
    "padding", [LEFT, RIGHT, RIGHT.flip(0)], ids=["left", "right", "shortest first"]
)
@pytest.mark.parametrize(
    "options",
    [
        Options(**NDR, num_steps=3),
        Options(**NDR, num_steps=3, alpha_threshold=0.7),
        Options(**NDR, num_steps=3, act="graves"),
        Options(**NDR, num_steps=3, num_retrievals=2, alpha_threshold=0.7),
        Options(**NDR, num_steps=3, num_retrievals=1, causal=True),
        Options(block="data-router-tanh", positions="transformer-xl", num_steps=3),
        Options(block="data-router-tanh", positions="absolute-relative", num_steps=3),
    ],
    ids=[
        "ndr",
        "ndr-halting",
        "ndr-act",
        "searches-halting",
        "searches-causal",
        "rel-gate",
        "abs-rel-gate",
    ],
)
def test_encoder(options: Options, padding: Tensor) -> None:
    assert_agrees(options, num_experts=1, padding=padding)


def test_the_shares_of_the_gate_add_up_to_one_in_bfloat16() -> None:
    """An update that equals the state leaves it as it is, over many steps."""
    stack = build_stack(Options(**NDR, num_steps=20), num_experts=1).float()
    assert isinstance(stack.block, DataRouterBlock)
    nn.init.zeros_(stack.block.update_norm.weight)
    nn.init.ones_(stack.block.update_norm.bias)
    states = torch.ones(*RIGHT.shape, EMBED_DIM)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(stack(states, RIGHT).states, states, rtol=0, atol=0)


@pytest.mark.parametrize("layout", ["compact", "masked"])
@pytest.mark.parametrize("num_experts", [1, 3])
@pytest.mark.parametrize("alpha_threshold", [None, 0.7])
def test_decoder(alpha_threshold: float | None, num_experts: int, layout: str) -> None:
    """With experts: a data router of mixtures, and a geometric mixture of attention heads."""
    options = Options(
        **NDR,
        attention_top_k=min(2, num_experts),
        causal=True,
        num_steps=3,
        alpha_threshold=alpha_threshold,
    )
    assert_agrees(options, num_experts=num_experts, cross=True, layout=layout)


def test_order_of_the_paper() -> None:
    """NDR Figure 1, right: the order in which each of five columns looks at the others.

    If all match with P = 1/2, the weight of the n-th to be looked at is 2^-n.
    """
    order = [
        [0, 1, 2, 3, 4],
        [2, 0, 1, 3, 4],
        [4, 2, 0, 1, 3],
        [4, 3, 2, 0, 1],
        [4, 3, 2, 1, 0],
    ]
    expected = torch.tensor([[0.5**n if n else 0.0 for n in row] for row in order])
    weights = geometric(torch.zeros(1, 1, 5, 1, 5), None, torch.arange(5).unsqueeze(0))
    torch.testing.assert_close(weights.view(5, 5), expected)


@pytest.mark.parametrize("function", [geometric, geometric_to_the_left])
def test_no_weight_above_one(function: Any) -> None:
    """However large the sums that cancel: their rounding alone would give weights of 1.2."""
    torch.manual_seed(0)
    scores = 1e4 + torch.randn(1, 1, 256, 1, 256)
    weights = function(scores, None, torch.arange(256).unsqueeze(0))
    assert 0.99 < weights.max() <= 1


@pytest.mark.parametrize("function", [geometric, geometric_to_the_left])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [20.0, 1e4])
def test_saturated_matches(function: Any, dtype: torch.dtype, size: float) -> None:
    """Where P is 0 or 1 to rounding, weights are right and gradients finite."""
    sign = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0, 1.0], dtype=dtype)
    scores = (size * sign).expand(1, 1, 6, 1, 6).clone().requires_grad_()
    weights = function(scores, None, torch.arange(6).unsqueeze(0))
    if function is geometric:
        nearest = [3, 0, 3, 5, 5, 3]
    else:
        nearest = [None, 0, 0, 0, 3, 3]
    expected = torch.zeros(6, 6, dtype=dtype)
    for query, key in enumerate(nearest):
        if key is not None:
            expected[query, key] = 1
    torch.testing.assert_close(weights.detach().view(6, 6), expected, rtol=0, atol=1e-8)
    (weights * torch.arange(36).view(1, 1, 6, 1, 6)).sum().backward()
    assert scores.grad is not None and scores.grad.isfinite().all()


@pytest.mark.parametrize("piece", [1, 40, 1 << 18])
@pytest.mark.parametrize("positions", ["consecutive", "offset", "scattered"])
@pytest.mark.parametrize("function", [geometric, geometric_to_the_left])
def test_weights_and_gradients(
    function: Any, positions: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways to find mirrored keys, cut anyhow, for several groups of heads per query."""
    monkeypatch.setattr("sut_fairseq.modules.attention.distributions.geometric._PIECE", piece)
    num_keys = 7
    places = {"consecutive": range(7), "offset": range(4, 7), "scattered": (1, 2, 5)}[positions]
    scores = normal(2, 2, len(places), 2, num_keys)
    visible = torch.ones(2, 1, num_keys, dtype=torch.bool)
    visible[1, 0, 3] = False
    weights = function(scores, visible, torch.tensor([list(places)]))
    expected = torch.zeros_like(weights)
    objective, signs = torch.zeros(()), normal(*scores.shape, seed=1).detach()
    for row in torch.cartesian_prod(*(torch.arange(n) for n in scores.shape[:4])).tolist():
        query = places[row[2]]
        keys = [
            key
            for key in range(num_keys)
            if visible[row[0], 0, key] and (function is geometric or key < query)
        ]
        own = references.geometric({key: scores[(*row, key)] for key in keys}, query)
        for key, weight in zip(keys, own):
            expected[(*row, key)] = weight.detach()
            objective = objective + weight * signs[(*row, key)]
    torch.testing.assert_close(weights.detach(), expected, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad((weights * signs).sum(), scores)
    (slow,) = torch.autograd.grad(objective, scores)
    torch.testing.assert_close(gradient, slow, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bias, copies", [(-1e6, True), (1e6, False)])
def test_a_gate_copies_or_updates(bias: float, copies: bool) -> None:
    """Gate 0: the state stays to the bit, however many steps; gate 1: the update alone."""
    stack = build_stack(Options(**NDR, num_steps=4), 1)
    stack.block.copy_gate.output.bias.data.fill_(bias)
    states = normal(*LEFT.shape, EMBED_DIM)
    output = run(stack, states, LEFT)
    if copies:
        assert torch.equal(output.states[~LEFT], states[~LEFT])
        return
    seen: list[Tensor] = []
    stack.block.update_norm.register_forward_hook(lambda *call: seen.append(call[2]))
    output = run(stack, states, LEFT)
    assert len(seen) == 4
    assert torch.equal(output.states[~LEFT], seen[-1])


def test_dropout_is_where_the_authors_have_it() -> None:
    """Of attention's result and of hidden layers; neither of the update nor of the gate itself."""
    stack = build_stack(Options(**NDR, num_steps=1), 1)
    block = stack.block
    dropped = []
    block.dropout.register_forward_hook(lambda *call: dropped.append(call[1][0].shape))
    run(stack, normal(*LEFT.shape, EMBED_DIM), LEFT)
    assert len(dropped) == 1
    gate, attended = CopyGate(8, hidden_dropout=0.5), torch.randn(50, 8)
    assert not torch.equal(gate.train()(attended), gate.eval()(attended))


def test_sinusoids_are_exact_in_half_precision() -> None:
    """Angles beyond a few positions need more digits than half precision has."""
    positions = TransformerXLPositions(16, 2, 4)
    places = torch.arange(-900, 900)
    expected = positions.position_keys(places, torch.zeros(()))
    half = positions.bfloat16().position_keys(places, torch.zeros(()))
    torch.testing.assert_close(half, expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("function", [geometric, geometric_to_the_left])
def test_long_sentences_in_single_precision(function: Any) -> None:
    """The sums that are subtracted grow with the length, and their rounding with them."""
    scores = 5 * normal(1, 1, 1024, 1, 1024)
    positions = torch.arange(1024).unsqueeze(0)
    exact, single = (function(s, None, positions) for s in (scores, scores.float()))
    torch.testing.assert_close(single.double(), exact, atol=1e-3, rtol=0)


def test_gates_start_nearly_closed() -> None:
    gate = CopyGate(8)
    assert torch.equal(gate.output.bias, torch.full((8,), -3.0))
    nn.init.zeros_(gate.output.weight)
    torch.testing.assert_close(gate(torch.randn(3, 8)), torch.full((3, 8), 0.04742587))


def test_gate_dropout_closes_whole_columns() -> None:
    gate, attended = CopyGate(8, dropout=0.25), torch.randn(4000, 8)
    kept = gate.eval()(attended)
    torch.manual_seed(0)
    dropped = gate.train()(attended)
    closed = (dropped == 0).all(dim=1)
    assert torch.equal(dropped[~closed], kept[~closed])
    assert 0.22 < closed.float().mean() < 0.28


def test_more_steps_go_on_from_fewer() -> None:
    """The number of steps is depth alone: as many as 3, then 2 with the same weights, are 5."""
    states = normal(*LEFT.shape, EMBED_DIM)
    outputs = {}
    for num_steps in (2, 3, 5):
        stack = build_stack(Options(**NDR, num_steps=num_steps), 1)
        outputs[num_steps] = run(stack, states, LEFT).states
        if num_steps == 2:
            two = stack
    torch.testing.assert_close(run(two, outputs[3], LEFT).states[~LEFT], outputs[5][~LEFT])
