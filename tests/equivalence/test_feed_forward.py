"""The mixture feed-forward layer against plain loops, and its two expert backends."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sut_fairseq.modules.routing import segments
from sut_fairseq.modules.routing.dispatch import Dispatch
from sut_fairseq.modules.routing.experts import ExpertInput, ExpertOutput
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.statistics import route_statistics
from tests import reference_losses, references
from tests.builders import EMBED_DIM, build_feed_forward
from tests.comparison import assert_agree, normal, randomise
from tests.references import Options

needs_grouped = pytest.mark.skipif(
    not hasattr(F, "grouped_mm"), reason="this torch has no torch.nn.functional.grouped_mm"
)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def assert_near(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    """Equal up to rounding: element by element in float32, as a whole in half precision."""
    assert ours.dtype == theirs.dtype
    if dtype == torch.float32:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    else:
        error = (ours.double() - theirs.double()).norm() / theirs.double().norm()
        assert error < 0.02


@pytest.mark.parametrize("name", ["gelu", "relu"])
@pytest.mark.parametrize("num_experts, top_k", [(1, 1), (2, 1), (3, 2), (5, 3), (3, 3)])
def test_agrees_with_loops(num_experts: int, top_k: int, name: str) -> None:
    options = Options(ffn_top_k=top_k)
    layer = randomise(build_feed_forward(options, num_experts, getattr(F, name)).double())
    states = normal(7, EMBED_DIM)
    weights = dict(layer.named_parameters())

    result, routed = layer(states)
    loop = partial(references.feed_forward, weights, top_k=top_k)
    activation = getattr(references, name)
    expected, calls = zip(*(loop(state, activation=activation) for state in states))

    ours, theirs = {"result": result}, {"result": torch.stack(expected)}
    if num_experts == 1:
        assert routed is None
    else:
        # Its gradients reach the router also where top_k = 1 leaves it no other.
        ours["partition"] = route_statistics([routed]).squared_log_partition
        theirs["partition"] = reference_losses.router_z(calls) * len(calls)
    assert_agree(ours, theirs, {**weights, "states": states})


def test_all_experts_chosen_is_the_softmax_mixture() -> None:
    layer = randomise(build_feed_forward(Options(ffn_top_k=4), 4).double())
    states = normal(5, EMBED_DIM)
    router = layer.router
    gates = router.output(torch.tanh(router.input(states))).softmax(-1)
    hidden = F.gelu(torch.einsum("nd,edh->neh", states, layer.input.weight) + layer.input.bias)
    values = torch.einsum("neh,ehd->ned", hidden, layer.output.weight) + layer.output.bias
    mixture = (gates.unsqueeze(-1) * values).sum(1)
    variables = {**dict(layer.named_parameters()), "states": states}
    assert_agree({"result": layer(states)[0]}, {"result": mixture}, variables)


def test_a_mixture_of_one_is_the_dense_layer() -> None:
    dense = randomise(build_feed_forward(Options(), 1).double())
    mixture = MixtureFeedForward(
        Router(EMBED_DIM, 1, 1),
        embed_dim=EMBED_DIM,
        hidden_dim=dense.input.out_features,
        activation=F.gelu,
    ).double()
    for name in ("input", "output"):
        getattr(mixture, name).weight.data[0] = getattr(dense, name).weight.data.T
        getattr(mixture, name).bias.data[0] = getattr(dense, name).bias.data
    states = normal(5, EMBED_DIM)
    ours, theirs = mixture(states)[0], dense(states)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for name in ("input", "output"):
        for kind, map_back in (("weight", lambda x: x[0].T), ("bias", lambda x: x[0])):
            own = torch.autograd.grad(
                ours.square().sum(), getattr(getattr(mixture, name), kind), retain_graph=True
            )[0]
            dense_own = torch.autograd.grad(
                theirs.square().sum(), getattr(getattr(dense, name), kind), retain_graph=True
            )[0]
            torch.testing.assert_close(map_back(own), dense_own, rtol=1e-12, atol=1e-12)


@needs_grouped
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inactive", [0, 2], ids=["all active", "some inactive"])
@pytest.mark.parametrize(
    "experts",
    [[0, 1, 2, 3, 3, 1, 0], [0, 0, 3, 3, 3, 3, 0], [2] * 5, [1, 2, 1], [3, 3, 3]],
    ids=["all used", "middle two empty", "one takes all", "first and last empty", "few rows"],
)
def test_expert_backends_agree(
    experts: list[int], inactive: int, bias: bool, dtype: torch.dtype, device: str
) -> None:
    """Also that inactive tokens get 0, and nobody anything from them."""
    tokens = normal(len(experts), 8, dtype=dtype).detach().to(device).requires_grad_()
    first = torch.tensor(experts, device=device)
    indices = torch.stack([first, (first + 1) % 4], dim=1)
    gates = normal(len(experts), 2, seed=1, dtype=dtype).detach().to(device).requires_grad_()
    active = torch.arange(len(experts), device=device) >= inactive
    results = {}
    for backend in ("loop", "grouped"):
        dispatch = Dispatch.from_indices(indices, 4, active if inactive else None)
        layers = (
            ExpertInput(4, 8, 16, bias=bias, backend=backend),
            ExpertOutput(4, 16, 8, bias=bias, backend=backend),
        )
        for layer in layers:
            randomise(layer).to(device, dtype)
        rows = layers[0](tokens, dispatch)
        output = layers[1](rows, gates, dispatch)
        assert not output[:inactive].any()
        # `sum` hands back an expanded gradient, with strides of 0, that grouped_mm cannot take.
        objective = output.float().square().sum() + output.sum() + rows.sum()
        parameters = [p for layer in layers for p in layer.parameters()]
        gradients = torch.autograd.grad(objective, [tokens, gates, *parameters])
        assert not gradients[0][:inactive].any()
        used = torch.zeros(4, dtype=torch.bool, device=device)
        used[indices[active].flatten()] = True
        for gradient in gradients[2:]:
            assert torch.equal(gradient.flatten(1).abs().amax(1) > 0, used)
        results[backend] = [rows, output, *gradients]
    for ours, theirs in zip(results["grouped"], results["loop"]):
        assert_near(ours, theirs, dtype)


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_of_the_loop_are_exact(bias: bool) -> None:
    """Against finite differences, in float64; one expert has no rows."""
    indices = torch.tensor([[0, 2], [2, 3], [3, 0], [2, 0]])
    dispatch = Dispatch.from_indices(indices, 4)
    first = randomise(ExpertInput(4, 3, 5, bias=bias, backend="loop").double())
    second = randomise(ExpertOutput(4, 5, 2, bias=bias, backend="loop").double())
    parameters = [*first.parameters(), *second.parameters()]

    def both(tokens: Tensor, gates: Tensor, *_: Tensor) -> Tensor:
        return second(first(tokens, dispatch).tanh(), gates, dispatch)

    assert torch.autograd.gradcheck(both, (normal(4, 3), normal(4, 2, seed=1), *parameters))


class ProductsInHalf(TorchDispatchMode):
    """Collects the numbers of rows of all matrix products in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: set[int] = set()

    def __torch_dispatch__(self, operator: Any, types: Any, given: Any, options: Any = None) -> Any:
        if operator.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            left = given[-2]
            if left.dtype == torch.bfloat16:
                self.rows.add(max(left.shape))
        return operator(*given, **(options or {}))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_in_blocks(bias: bool, autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 on a CPU, experts of any size multiply few shapes, and rightly so."""
    indices = torch.tensor([0] * 3 + [1] * 40 + [2] * 45 + [3] * 80).unsqueeze(1)
    tokens, gates = (normal(len(indices), size).detach().bfloat16() for size in (8, 1))
    results = []
    for block in (40, 1000):  # 1000: all in float32
        monkeypatch.setattr(segments, "_BLOCK", block)
        dispatch = Dispatch.from_indices(indices, 4)
        layers = (
            randomise(ExpertInput(4, 8, 16, bias=bias, backend="loop")).bfloat16(),
            randomise(ExpertOutput(4, 16, 8, bias=bias, backend="loop")).bfloat16(),
        )
        inputs = [tokens.clone().requires_grad_(), gates.clone().requires_grad_()]
        with ProductsInHalf() as products:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output = layers[1](layers[0](inputs[0], dispatch), inputs[1], dispatch)
            parameters = [p for layer in layers for p in layer.parameters()]
            results.append(
                [output, *torch.autograd.grad(output.square().sum(), [*inputs, *parameters])]
            )
        assert products.rows == ({40, 80} if block == 40 else set())
    for ours, theirs in zip(*results):
        assert_near(ours, theirs, torch.bfloat16)


@needs_grouped
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("block", [512, 1])
@pytest.mark.parametrize("top_k", [1, 2])
def test_mixture_backends_agree(
    top_k: int, block: int, autocast: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole layer, with routing so uneven that some experts stay empty."""
    monkeypatch.setattr(segments, "_BLOCK", block)
    states = normal(3, 8, dtype=torch.float32).detach().to(device).requires_grad_()
    results = {}
    for backend in ("loop", "grouped"):
        router = Router(8, 6, top_k)
        layer = MixtureFeedForward(
            router,
            embed_dim=8,
            hidden_dim=16,
            activation=F.gelu,
            expert_backend=backend,
        )
        randomise(layer).to(device)
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            output, calls = layer(states)
        statistics = route_statistics([calls])
        assert (statistics.assignments == 0).any()
        assert output.dtype == (torch.bfloat16 if autocast else torch.float32)
        gradients = torch.autograd.grad(
            output.float().square().sum() + statistics.squared_log_partition,
            [states, *layer.parameters()],
        )
        results[backend] = [output, *gradients]
    for ours, theirs in zip(results["grouped"], results["loop"]):
        assert_near(ours, theirs, torch.bfloat16 if autocast else torch.float32)


@pytest.mark.parametrize("num_experts", [255, 256, 300])
def test_the_order_of_many_experts(num_experts: int) -> None:
    """Up to 255 they are sorted as 8-bit numbers, the one that stands for inactive included."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(num_experts, (500, 2), generator=generator)
    active = torch.arange(500) % 5 > 0
    dispatch = Dispatch.from_indices(chosen, num_experts, active)
    pairs = torch.where(active.unsqueeze(1), chosen, num_experts).flatten()
    assert dispatch.experts.tolist() == sorted(pairs.tolist())
    assert pairs[dispatch.order].tolist() == dispatch.experts.tolist()
    assert (
        dispatch.offsets.tolist() == pairs.bincount(minlength=num_experts).cumsum(0)[:-1].tolist()
    )
    assert dispatch.outside is not None and int(dispatch.outside.sum()) == 200


def test_auto_is_the_loop_on_a_cpu_and_in_float64() -> None:
    dispatch = Dispatch.from_indices(torch.tensor([[0], [3], [1]]), 4)
    loop, auto = (
        randomise(ExpertInput(4, 8, 16, bias=True, backend=name).double())(normal(3, 8), dispatch)
        for name in ("loop", "auto")
    )
    assert torch.equal(loop, auto)


def test_sums_over_experts_are_rounded_once() -> None:
    """In bfloat16, 256 + 1 is 256, and so is that plus 1 again."""
    layer = ExpertInput(9, 1, 1, bias=False, backend="loop").bfloat16()
    weights = torch.tensor([256.0] + 8 * [1.0])
    with torch.no_grad():
        layer.weight.copy_(weights.view(9, 1, 1))
    states = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    rows = layer(states, Dispatch.from_indices(torch.arange(9).unsqueeze(0), 9))
    (gradient,) = torch.autograd.grad(rows, states, torch.ones_like(rows))
    assert float(gradient) == 264
