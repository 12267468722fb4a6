"""The masked layout: a training step that never waits for the device, and compiles to one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.models.universal_transformer import UniversalTransformerModel
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.statistics import route_statistics
from tests.combinations import every_pair
from tests.comparison import normal
from tests.models import ATTENTION_KINDS, HALTING, MIXTURE, batch, small_model, task

pytestmark = pytest.mark.skipif(
    not hasattr(F, "grouped_mm"), reason="this torch has no torch.nn.functional.grouped_mm"
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
ACT = dict(encoder_halting="act", decoder_halting="act-ut")

# What reads a value, or a shape that depends on values, from the device.
WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "bincount"),
    *("equal", "is_nonzero", "repeat_interleave", "lift_fresh"),
}


class Watch(TorchDispatchMode):
    """Notes every operation that would have to wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        by_mask = any(i is not None and i.dtype == torch.bool for i in indices)
        if name in WAITS or by_mask:
            self.waits.append(name)
        return func(*args, **(kwargs or {}))


def model_of(**options: Any) -> UniversalTransformerModel:
    sizes = dict(encoder_ffn_embed_dim=16, alpha_threshold=0.5, halting_epsilon=0.4)
    model = small_model(**{**MIXTURE, **HALTING, **sizes, **options}, dtype=torch.float32)
    return model.train()


def objective(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Our criterion with every term that has a gradient of its own."""
    terms = ("mutual_information", "expected_depth", "remainder", "router_z")
    weights = dict.fromkeys(terms, 0.1)
    criterion = CrossEntropyWithAuxiliaryCriterion(task(), False, 0.1, weights=weights)
    sample = {"net_input": inputs, "target": inputs["prev_output_tokens"], "ntokens": 9}
    return criterion(model, sample)[0]


@every_pair(
    kind=ATTENTION_KINDS, checkpoint=[False, True], halting={"stick-breaking": HALTING, "act": ACT}
)
def test_a_training_step_waits_for_nothing(
    kind: dict[str, Any], checkpoint: bool, halting: dict[str, str]
) -> None:
    experts = (
        {} if kind is ATTENTION_KINDS["mixture"] else dict(attention_experts=1, attention_top_k=1)
    )
    options = dict(
        experts,
        **kind,
        **halting,
        dropout=0.1,
        router_dropout=0.1,
        checkpoint_activations=checkpoint,
    )
    model = model_of(token_layout="masked", expert_backend="grouped", **options)
    inputs = batch()
    with Watch() as watch:
        objective(model, inputs).backward()
    assert watch.waits == []
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_watch_sees_what_the_compact_layout_waits_for() -> None:
    model, inputs = model_of(token_layout="compact", expert_backend="loop"), batch()
    with Watch() as watch:
        objective(model, inputs)
    assert {"nonzero", "bincount", "_local_scalar_dense"} <= set(watch.waits)


def agree_compiled(
    module: nn.Module, objective: Callable[[nn.Module], Tensor], dtype: torch.dtype, backend: str
) -> None:
    """Loss and gradients of one graph, forward and backward, are those without compilation."""
    device = next(module.parameters()).device.type
    results = []
    for runs in (module, torch.compile(module, backend=backend, fullgraph=True)):
        module.zero_grad()
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            loss = objective(runs)
        loss.backward()
        results.append([loss, *(p.grad for p in module.parameters() if p.grad is not None)])
    assert len(results[0]) > 5
    for ours, theirs in zip(*results, strict=True):
        error = (ours - theirs).norm() / theirs.norm().clamp(min=1e-3)
        assert error < (1e-4 if dtype == torch.float32 else 0.02)  # sums in another order


@pytest.mark.parametrize(
    ("distribution", "dtype"),
    [
        ("softmax", torch.float32),
        pytest.param("softmax", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("geometric", torch.float32, marks=pytest.mark.slow),
    ],
)
def test_a_depth_loop_compiles_to_one_graph(distribution: str, dtype: torch.dtype) -> None:
    """Tracing shows what breaks a graph; generating code for it would take minutes."""
    options = dict(expert_backend="grouped", token_layout="masked", encoder_layers=2)
    if distribution != "softmax":
        options |= dict(attention_distribution=distribution, attention_positions="direction")
    stack = model_of(**options).encoder.stack
    states = normal(2, 5, 16, dtype=torch.float32).detach()
    padding = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()

    def loss(runs: nn.Module) -> Tensor:
        output = runs(states, padding)
        routed = torch.stack([s.squared_log_partition for s in output.routing.values()])
        return output.states[~padding].float().square().sum() + routed.sum()

    agree_compiled(stack, loss, dtype, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_training_step_compiles_to_one_graph(dtype: torch.dtype) -> None:
    kinds = dict(encoder_halting="act", decoder_halting="stick-breaking")
    model = model_of(expert_backend="grouped", encoder_layers=2, decoder_layers=2, **kinds)

    def loss(runs: nn.Module) -> Tensor:
        scores, extra = runs(**batch())
        sums = [s.expected_depth + s.remainder for s in extra["halting"].values()]
        return scores.float().square().mean() + torch.stack(sums).sum()

    agree_compiled(model, loss, dtype, "aot_eager")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_experts_compile_to_one_graph(backend: str, dtype: torch.dtype, device: str) -> None:
    """One layer, in which some tokens take no part; also the code that torch makes of it."""
    router = Router(16, 4, 2)
    sizes = dict(embed_dim=16, hidden_dim=16, activation=F.gelu)
    layer = MixtureFeedForward(router, **sizes, expert_backend="grouped").to(device)
    states = normal(24, 16, dtype=torch.float32).detach().to(device)
    active = torch.arange(24, device=device) % 5 > 0

    def loss(runs: nn.Module) -> Tensor:
        result, calls = runs(states, None, active)
        statistics = route_statistics([calls])
        return result.float().square().sum() + result.sum() + statistics.squared_log_partition

    agree_compiled(layer, loss, dtype, backend)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout, backend", [("compact", "loop"), ("masked", "grouped")])
def test_deterministic_on_request(layout: str, backend: str, device: str) -> None:
    """Nothing is used that torch would refuse, and two runs agree to the bit."""
    model = model_of(token_layout=layout, expert_backend=backend).to(device)
    inputs = {name: tensor.to(device) for name, tensor in batch().items()}
    gradients: list[list[Tensor]] = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            model.zero_grad()
            model(**inputs)[0].square().sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(gradients[0]) > 20
    assert all(torch.equal(one, other) for one, other in zip(*gradients))
