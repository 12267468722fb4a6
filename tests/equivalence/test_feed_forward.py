"""The mixture feed-forward layer against plain loops, and its two expert backends."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sut_fairseq.modules.routing.dispatch import Dispatch
from sut_fairseq.modules.routing.experts import ExpertLinear
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from tests import reference_losses, references
from tests.builders import EMBED_DIM, build_feed_forward
from tests.comparison import assert_agree, normal, randomise
from tests.references import Options

needs_grouped = pytest.mark.skipif(
    not hasattr(F, "grouped_mm"), reason="this torch has no torch.nn.functional.grouped_mm"
)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def assert_near(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    """Equal up to rounding: element by element in float32, as a whole in bfloat16 (8 bits)."""
    assert ours.dtype == theirs.dtype
    if dtype == torch.float32:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    else:
        error = (ours.double() - theirs.double()).norm() / theirs.double().norm()
        assert error < 0.02


@pytest.mark.parametrize("num_experts, top_k", [(1, 1), (2, 1), (3, 2), (5, 3), (3, 3)])
def test_agrees_with_loops(num_experts: int, top_k: int) -> None:
    options = Options(ffn_top_k=top_k)
    layer = randomise(build_feed_forward(options, num_experts).double())
    states = normal(7, EMBED_DIM)
    weights = dict(layer.named_parameters())

    result, statistics = layer(states)
    expected, calls = zip(*(references.feed_forward(weights, x, top_k) for x in states))

    ours, theirs = {"result": result}, {"result": torch.stack(expected)}
    if num_experts == 1:
        assert statistics is None
    else:
        # Its gradients reach the router also where top_k = 1 leaves it no other.
        ours["partition"] = statistics.squared_log_partition
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


def _expert_linear(backend: str, bias: bool, device: str, dtype: torch.dtype) -> ExpertLinear:
    layer = ExpertLinear(4, 8, 16, bias=bias, backend=backend)
    return randomise(layer).to(device, dtype)


@needs_grouped
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "experts",
    [[0, 1, 2, 3, 3, 1, 0], [0, 0, 3, 3, 3, 3, 0], [2] * 5, [1, 2, 1], [3]],
    ids=["all used", "middle two empty", "one takes all", "first and last empty", "one row"],
)
def test_expert_backends_agree(
    experts: list[int], bias: bool, dtype: torch.dtype, device: str
) -> None:
    dispatch = Dispatch.from_indices(torch.tensor(experts, device=device).unsqueeze(1), 4)
    tokens = normal(len(experts), 8, dtype=dtype).detach().to(device).requires_grad_()
    rows = dispatch.sort_tokens(tokens)
    outputs, gradients = {}, {}
    for backend in ("loop", "grouped"):
        layer = _expert_linear(backend, bias, device, dtype)
        outputs[backend] = layer(rows, dispatch.offsets)
        # `sum` hands back an expanded gradient, with strides of 0, that grouped_mm cannot take.
        objective = outputs[backend].float().square().sum() + outputs[backend].sum()
        gradients[backend] = torch.autograd.grad(
            objective, [tokens, *layer.parameters()], retain_graph=True
        )
        used = layer.weight.new_zeros(4).index_fill(0, torch.tensor(experts, device=device), 1)
        touched = gradients[backend][1].abs().amax((1, 2)) > 0
        assert touched.tolist() == used.bool().tolist()
    assert_near(outputs["grouped"], outputs["loop"], dtype)
    for ours, theirs in zip(gradients["grouped"], gradients["loop"]):
        assert_near(ours, theirs, dtype)


@needs_grouped
def test_sum_of_grouped_rows_has_a_gradient() -> None:
    layer = _expert_linear("grouped", False, "cpu", torch.float32)
    rows = normal(6, 8, dtype=torch.float32)
    layer(rows, torch.tensor([1, 3, 3, 6], dtype=torch.int32)).sum().backward()
    expected = layer.weight.sum(-1)[[0, 1, 1, 3, 3, 3]]
    torch.testing.assert_close(rows.grad, expected)


@needs_grouped
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("top_k", [1, 2])
def test_mixture_backends_agree(top_k: int, autocast: bool, device: str) -> None:
    """The whole layer, with routing so uneven that some experts stay empty."""
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
            output, statistics = layer(states)
        assert (statistics.assignments == 0).any()
        assert output.dtype == (torch.bfloat16 if autocast else torch.float32)
        gradients = torch.autograd.grad(
            output.float().square().sum() + statistics.squared_log_partition,
            [states, *layer.parameters()],
        )
        results[backend] = [output, *gradients]
    for ours, theirs in zip(results["grouped"], results["loop"]):
        assert_near(ours, theirs, torch.bfloat16 if autocast else torch.float32)


def test_auto_is_the_loop_on_a_cpu_and_in_float64() -> None:
    rows = normal(4, 8)
    offsets = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    loop, auto = (_expert_linear(name, True, "cpu", torch.float64) for name in ("loop", "auto"))
    assert torch.equal(loop(rows, offsets), auto(rows, offsets))
