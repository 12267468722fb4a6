"""Feed-forward experts against dense layers of the same MACs and bare matrix products.

Measured is a forward and a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.analysis.benchmark.peers import TOLERANCE, options_of, roundest
from sut_fairseq.analysis.benchmark.report import Report, refuse_changed, size
from sut_fairseq.analysis.benchmark.steps import layer_step
from sut_fairseq.analysis.benchmark.timing import Conditions, measure
from sut_fairseq.modules.feedforward import DenseFeedForward
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.statistics import RouterCalls

REPETITIONS = 20

_MEANINGS = {
    "dense": "throughput of the experts / that of a dense layer with the MACs of experts and "
    "router (1: routing is free)",
    "dense_without_router": "the same, against a dense layer with the MACs of the experts alone",
    "gemm": "throughput of the experts / that of bare matrix products with the dense layer's MACs",
    "loop": "throughput of the backend that `auto` chooses / that of `loop`",
    "grouped": "throughput of the backend that `auto` chooses / that of `grouped`",
    "scattermoe": "throughput of the experts / that of ScatterMoE's kernels with the same router",
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the layers."""

    arch: str | None = size(None, "take all sizes of the layers from this architecture")
    embed_dim: int = size(512, "size of a token's state")
    num_experts: int = size(24, "number of experts")
    top_k: int = size(4, "experts that each token uses")
    hidden_dim: int = size(512, "hidden size of each expert")
    tokens: int = size(4096, "number of tokens")

    def resolved(self) -> Sizes:
        """With the sizes of `arch` filled in."""
        options = options_of(self.arch)
        if options is None:
            return self
        names = ("embed_dim", "num_experts", "top_k", "hidden_dim")
        refuse_changed(self, names, "these sizes are those of --arch")
        return replace(
            self,
            embed_dim=options.encoder_embed_dim,
            num_experts=options.ffn_experts,
            top_k=options.ffn_top_k,
            hidden_dim=options.encoder_ffn_embed_dim,
        )

    @property
    def router_macs(self) -> int:
        """MACs of routing a token."""
        return self.embed_dim * (self.embed_dim + self.num_experts)

    @property
    def mixture_macs(self) -> int:
        """MACs of a token, routing included."""
        return self.router_macs + self.top_k * self.dense_macs(self.hidden_dim)

    def dense_macs(self, hidden_dim: int) -> int:
        """MACs of a token in a dense layer of this hidden size."""
        return 2 * self.embed_dim * hidden_dim

    @property
    def equal_hidden_dim(self) -> int:
        """Hidden size of a dense layer with the MACs of a mixture, within 1 % if there is one."""
        exact = self.mixture_macs / (2 * self.embed_dim)
        return roundest(exact, TOLERANCE * exact) or max(1, round(exact))


class _ScatterMoE(nn.Module):
    """ScatterMoE's experts behind our router; its kernels do not support autocast."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype) -> None:
        super().__init__()
        self.router = Router(sizes.embed_dim, sizes.num_experts, sizes.top_k)
        self.dtype = dtype
        mlp = import_module("scattermoe.mlp").MLP
        self.experts = mlp(
            sizes.embed_dim, sizes.hidden_dim, sizes.num_experts, sizes.top_k, nn.GELU()
        ).to(dtype)

    def forward(self, states: Tensor) -> tuple[Tensor, RouterCalls]:
        routing = self.router(states)
        weights = routing.expert_weights.to(self.dtype)
        result = self.experts(states.to(self.dtype), weights, routing.expert_indices)
        return result, routing.calls


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure a forward and a backward pass of each kind of layer on the same tokens.

    Raises:
        InputError: if `top_k` is greater than `num_experts`, or for a bad architecture.
    """
    sizes = sizes.resolved()
    report = Report("experts", sizes, conditions)
    report.settings["dense_hidden_dim"] = sizes.equal_hidden_dim
    torch.manual_seed(conditions.seed)
    states = torch.randn(
        sizes.tokens, sizes.embed_dim, device=conditions.device, requires_grad=True
    )
    gradient = torch.randn_like(states)
    modules = _modules(sizes, conditions)
    variants: dict[str, Callable[[], object]] = {
        name: layer_step(module, states, gradient, conditions) for name, module in modules.items()
    }
    variants["gemm"] = _products(sizes, conditions)
    per_token = dict.fromkeys(variants, sizes.mixture_macs)
    per_token["dense"] = per_token["gemm"] = sizes.dense_macs(sizes.equal_hidden_dim)
    per_token["dense_without_router"] = sizes.top_k * sizes.dense_macs(sizes.hidden_dim)
    # The backward pass has two products for each of the forward pass.
    macs = {name: 3 * sizes.tokens * one for name, one in per_token.items()}
    timings = measure(variants, conditions, description="experts")
    report.add_times(timings, macs=macs, tokens=dict.fromkeys(variants, sizes.tokens))
    for name, meaning in _MEANINGS.items():
        if name in variants:
            report.add_ratio(f"to_{name}", timings.ratio(name, "experts"), meaning)
    return report


def _modules(sizes: Sizes, conditions: Conditions) -> dict[str, nn.Module]:
    """The layers in training mode; all mixtures have the same weights, so the same routing."""
    experts = _mixture(sizes, "auto")
    modules: dict[str, nn.Module] = {"experts": experts, "loop": _mixture(sizes, "loop")}
    itemsize = conditions.dtype.itemsize
    multiples = all(n * itemsize % 16 == 0 for n in (sizes.embed_dim, sizes.hidden_dim))
    if hasattr(F, "grouped_mm") and multiples:
        modules["grouped"] = _mixture(sizes, "grouped")
    for mixture in modules.values():
        mixture.load_state_dict(experts.state_dict())
    modules["dense"] = _dense(sizes, sizes.equal_hidden_dim)
    modules["dense_without_router"] = _dense(sizes, sizes.top_k * sizes.hidden_dim)
    if conditions.device.type == "cuda" and find_spec("scattermoe") is not None:
        modules["scattermoe"] = _ScatterMoE(sizes, conditions.dtype)
    return {name: module.to(conditions.device) for name, module in modules.items()}


def _mixture(sizes: Sizes, backend: str) -> MixtureFeedForward:
    router = Router(sizes.embed_dim, sizes.num_experts, sizes.top_k)
    return MixtureFeedForward(
        router,
        embed_dim=sizes.embed_dim,
        hidden_dim=sizes.hidden_dim,
        activation=F.gelu,
        expert_backend=backend,
    )


def _dense(sizes: Sizes, hidden_dim: int) -> DenseFeedForward:
    return DenseFeedForward(embed_dim=sizes.embed_dim, hidden_dim=hidden_dim, activation=F.gelu)


def _products(sizes: Sizes, conditions: Conditions) -> Callable[[], object]:
    """The six matrix products of a dense layer's forward and backward pass, and nothing else."""

    def new(*shape: int) -> Tensor:
        # Scaled, so that no chained product leaves the range of the type.
        values: Any = torch.randn(shape, device=conditions.device) * shape[-1] ** -0.5
        return values.to(conditions.dtype)

    n, d, h = sizes.tokens, sizes.embed_dim, sizes.equal_hidden_dim
    states, result, gradient, states_gradient = (new(n, d) for _ in range(4))
    hidden, hidden_gradient = new(n, h), new(n, h)
    (first, first_gradient), (second, second_gradient) = (
        (new(*shape), new(*shape)) for shape in ((d, h), (h, d))
    )

    def run() -> None:
        torch.mm(states, first, out=hidden)
        torch.mm(hidden, second, out=result)
        torch.mm(gradient, second.T, out=hidden_gradient)
        torch.mm(hidden.T, gradient, out=second_gradient)
        torch.mm(hidden_gradient, first.T, out=states_gradient)
        torch.mm(states.T, hidden_gradient, out=first_gradient)

    return run
