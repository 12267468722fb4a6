"""Geometric attention compared with softmax attention, without the projections around them."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.analysis.benchmark.steps import Step
from sut_fairseq.analysis.benchmark.timing import Conditions
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions.geometric import Geometric
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.attention.positions.direction import Direction
from sut_fairseq.modules.tokens import ActiveTokens

# Geometric attention is measured with its directional scores, softmax attention without positions.
VARIANTS = ("softmax", "geometric", "softmax_causal", "geometric_causal")


def steps(
    *, batch: int, length: int, num_heads: int, head_dim: int, conditions: Conditions
) -> dict[str, Step]:
    """A forward and a backward pass of each variant, from queries, keys and values to contexts."""
    return {name: _step(name, batch, length, num_heads, head_dim, conditions) for name in VARIANTS}


def _step(
    name: str, batch: int, length: int, num_heads: int, head_dim: int, conditions: Conditions
) -> Step:
    causal, inner = name.endswith("_causal"), num_heads * head_dim
    is_geometric = name.startswith("geometric")
    core = AttentionCore(
        positions=Direction(inner, num_heads, head_dim) if is_geometric else None,
        distribution=Geometric(causal=causal) if is_geometric else None,
        causal=causal,
    ).to(conditions.device)
    active = torch.ones(batch, length, dtype=torch.bool, device=conditions.device)
    tokens = ActiveTokens.from_mask(active, "masked" if active.is_cuda else "compact")

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, device=conditions.device, requires_grad=True)

    queries, states = leaf(batch * length, 1, num_heads, head_dim), leaf(batch * length, inner)
    keys, values = (leaf(batch, num_heads, length, head_dim) for _ in range(2))
    gradient = torch.randn_like(queries)

    def forward() -> tuple[list[Tensor], list[Tensor | None]]:
        with conditions.autocast():
            # A `look` callback rules out torch's fused kernels, which never form the weights.
            context = core(queries, tokens, Memory(keys, values), states, lambda *seen: None)
        return [context], [gradient.to(context.dtype)]

    return Step(core, forward, (queries, keys, values, states))
