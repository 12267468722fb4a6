"""Compositional attention compared with multi-head attention of as many heads as searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sut_fairseq.analysis.benchmark.peak import peak_bytes
from sut_fairseq.analysis.benchmark.report import Report
from sut_fairseq.analysis.benchmark.steps import Step, WholeSentences, layer_step
from sut_fairseq.analysis.benchmark.timing import Conditions, Ratio, Timings, measure
from sut_fairseq.modules.attention.compositional import CompositionalAttention
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.multihead import MultiheadAttention
from sut_fairseq.modules.initialization import xavier_linear

MULTIHEAD, WEIGHED, VALUES = "multihead", "multihead_weights", "multihead_values"


@dataclass(frozen=True)
class Shape:
    """S searches, and the sizes of the layers."""

    embed_dim: int
    num_searches: int
    head_dim: int
    retrieval_dim: int

    def value_macs(self, length: int) -> int:
        """MACs per token of the values of multi-head attention: V, and weights times V."""
        return self.num_searches * self.head_dim * (self.embed_dim + length)

    def multihead_macs(self, length: int) -> int:
        """MACs of a token's forward pass."""
        inner = self.num_searches * self.head_dim
        return inner * (3 * self.embed_dim + length) + self.value_macs(length)

    def macs(self, retrievals: int, length: int) -> int:
        """MACs of a token's forward pass with R retrievals, shared by all searches."""
        values = self.head_dim * (self.embed_dim + self.num_searches * length)
        scores = self.retrieval_dim * (self.embed_dim + self.head_dim)
        scores += 2 * retrievals * self.head_dim
        chosen = self.num_searches * scores if retrievals > 1 else 0
        multihead = self.multihead_macs(length) - self.value_macs(length)
        return multihead + retrievals * values + chosen


class _Values(nn.Module):
    """The value part of multi-head attention: V = X W_v, and weights times V."""

    def __init__(self, shape: Shape, weights: Tensor) -> None:
        super().__init__()
        self.num_heads = shape.num_searches
        inner = shape.num_searches * shape.head_dim
        self.value = xavier_linear(shape.embed_dim, inner, bias=False)
        self.weights = nn.Parameter(weights)  # a parameter, so that it gets a gradient

    def forward(self, states: Tensor) -> tuple[Tensor, None]:
        values = self.value(states).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return (self.weights.to(values.dtype) @ values).transpose(1, 2).flatten(2), None


def steps(
    shape: Shape, retrievals: Sequence[int], *, batch: int, length: int, conditions: Conditions
) -> dict[str, Step]:
    """A forward and a backward pass of each variant on the same sentences."""
    device = conditions.device
    states = torch.randn(batch, length, shape.embed_dim, device=device, requires_grad=True)
    sizes: dict[str, Any] = dict(
        embed_dim=shape.embed_dim, source_dim=shape.embed_dim, head_dim=shape.head_dim
    )
    heads = MultiheadAttention(AttentionCore(), num_heads=shape.num_searches, **sizes)
    weights = torch.randn(batch, shape.num_searches, length, length, device=device).softmax(dim=-1)
    modules: dict[str, nn.Module] = {
        MULTIHEAD: WholeSentences(heads),
        WEIGHED: WholeSentences(heads, forms_weights=True),
        VALUES: _Values(shape, weights),
        **{
            f"compositional_{number}": WholeSentences(
                CompositionalAttention(
                    AttentionCore(),
                    num_searches=shape.num_searches,
                    num_retrievals=number,
                    value_dim=shape.head_dim,
                    retrieval_dim=shape.retrieval_dim,
                    **sizes,
                )
            )
            for number in retrievals
        },
    }
    gradients = {
        size: torch.randn(batch, length, size, device=device)
        for size in (shape.embed_dim, shape.num_searches * shape.head_dim)
    }
    return {
        name: layer_step(
            module.to(device),
            states,
            gradients[shape.num_searches * shape.head_dim if name == VALUES else shape.embed_dim],
            conditions,
        )
        for name, module in modules.items()
    }


def add(
    report: Report, shape: Shape, retrievals: Sequence[int], *, batch: int, length: int
) -> None:
    """Measure all variants at a length; compare them with multi-head attention and the bound.

    The bound is the cost of multi-head attention plus R times that of its values. Memory is
    compared with multi-head attention that forms its weights, as compositional attention does for
    R > 1.
    """
    conditions = report.conditions
    variants = steps(shape, retrievals, batch=batch, length=length, conditions=conditions)
    peaks = {name: peak_bytes(step, conditions) for name, step in variants.items()}
    timings = measure(variants, conditions, description=f"compositional attention, length {length}")
    tokens = batch * length
    multihead = shape.multihead_macs(length)
    macs = {
        **dict.fromkeys((MULTIHEAD, WEIGHED), multihead),
        VALUES: shape.value_macs(length),
        **{f"compositional_{number}": shape.macs(number, length) for number in retrievals},
    }
    report.add_times(
        timings,
        macs={name: 3 * tokens * one for name, one in macs.items()},
        tokens=dict.fromkeys(variants, tokens),
        peaks=peaks,
        suffix=f"_{length}",
    )
    for number in retrievals:
        name = f"compositional_{number}"
        at = f"{number}_{length}"
        report.add_ratio(
            f"macs_{at}", macs[name] / multihead, f"MACs of {number} retrievals / multi-head"
        )
        report.add_ratio(
            f"time_{at}",
            timings.ratio(name, MULTIHEAD),
            f"time of {number} retrievals / multi-head attention as it runs (fused)",
        )
        report.add_ratio(
            f"time_to_bound_{at}",
            _to_bound(timings, name, number),
            f"time of {number} retrievals / (multi-head with weights + {number} x its values)",
        )
        report.add_ratio(
            f"memory_{at}",
            peaks[name] / peaks[WEIGHED],
            f"peak memory of {number} retrievals / multi-head with weights",
        )
        report.add_ratio(
            f"memory_to_bound_{at}",
            peaks[name] / (peaks[WEIGHED] + number * peaks[VALUES]),
            f"peak memory of {number} retrievals / (multi-head with weights + {number} x its "
            f"values)",
        )


def _to_bound(timings: Timings, name: str, retrievals: int) -> Ratio:
    """Time relative to the bound, paired by repetition."""
    seconds = timings.seconds
    bound = [
        weighed + retrievals * values for weighed, values in zip(seconds[WEIGHED], seconds[VALUES])
    ]
    return Timings({"own": seconds[name], "bound": bound}).ratio("own", "bound")
