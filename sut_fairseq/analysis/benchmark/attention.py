"""Kinds of attention against what they replace: time and peak memory.

Mixture attention against dense attention of as many query heads, geometric against softmax, and
compositional against multi-head attention. Measured is a forward and a backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.analysis.benchmark import compositional, geometric
from sut_fairseq.analysis.benchmark.peak import peak_bytes
from sut_fairseq.analysis.benchmark.peers import options_of
from sut_fairseq.analysis.benchmark.report import Report, refuse_changed, size
from sut_fairseq.analysis.benchmark.steps import Step, WholeSentences, layer_step
from sut_fairseq.analysis.benchmark.timing import Conditions, measure
from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.attention.multihead import MultiheadAttention
from sut_fairseq.modules.attention.positions.window import RelativeWindow
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.routing.router import Router

REPETITIONS = 10

KINDS = ("mixture", "geometric", "compositional")
# Sizes that not every kind has.
_SIZES_OF = {
    ("num_experts", "top_k", "window"): ("mixture",),
    ("num_heads",): ("mixture", "geometric"),
    ("embed_dim",): ("mixture", "compositional"),
    ("searches", "retrievals", "retrieval_dim"): ("compositional",),
}
VARIANTS = ("mixture", "mixture_no_window", "dense", "dense_no_window", "torch")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the layers; dense attention has `top_k` times `num_heads` heads."""

    arch: str | None = size(None, "take all sizes of the layers from this architecture")
    embed_dim: int = size(512, "size of a token's state")
    num_experts: int = size(24, "number of attention experts")
    top_k: int = size(4, "experts that each token uses")
    num_heads: int = size(4, "heads of each expert; dense attention has that many times --top-k")
    head_dim: int = size(64, "size of a head")
    window: int = size(64, "largest relative offset that is distinguished, in tokens")
    searches: int = size(8, "searches of compositional attention")
    retrievals: tuple[int, ...] = size((1, 2, 4, 8), "retrievals of compositional attention")
    retrieval_dim: int = size(32, "size of retrieval queries and keys")
    kinds: tuple[str, ...] = size(KINDS, "what to measure: " + " ".join(KINDS))
    lengths: tuple[int, ...] = size((64, 256, 1024), "sentence lengths, in tokens")
    tokens: int = size(4096, "tokens in a batch: sentences are as many as fit")

    def resolved(self) -> Sizes:
        """With the sizes of `arch` filled in."""
        options = options_of(self.arch)
        if options is None:
            return self
        names = ("embed_dim", "num_experts", "top_k", "num_heads", "head_dim", "window")
        refuse_changed(self, names, "these sizes are those of --arch")
        heads = options.encoder_attention_heads
        return replace(
            self,
            embed_dim=options.encoder_embed_dim,
            num_experts=options.attention_experts,
            top_k=options.attention_top_k,
            num_heads=heads,
            head_dim=options.attention_head_dim or options.encoder_embed_dim // heads,
            window=options.attention_window,
        )

    @property
    def query_heads(self) -> int:
        """Number of heads that each token attends with."""
        return self.top_k * self.num_heads

    def macs(self, variant: str, length: int) -> int:
        """MACs of a token's forward pass in a sentence of this length."""
        inner, shared = self.query_heads * self.head_dim, self.num_heads * self.head_dim
        offsets = 2 * min(self.window, length - 1) + 1
        products = inner * (2 * length + (offsets if variant in ("mixture", "dense") else 0))
        queries_and_output = 2 * self.embed_dim * inner
        if variant.startswith("mixture"):
            router = self.embed_dim * (self.embed_dim + self.num_experts)
            return products + queries_and_output + 2 * self.embed_dim * shared + router
        return products + queries_and_output + 2 * self.embed_dim * inner


def _attention(sizes: Sizes, *, mixture: bool, window: bool) -> Attention:
    """An attention kind of this package."""
    num_heads = sizes.num_heads if mixture else sizes.query_heads
    positions = RelativeWindow(num_heads, sizes.head_dim, sizes.window) if window else None
    core = AttentionCore(positions=positions)
    shape: dict[str, Any] = dict(
        embed_dim=sizes.embed_dim,
        source_dim=sizes.embed_dim,
        num_heads=num_heads,
        head_dim=sizes.head_dim,
    )
    if not mixture:
        return MultiheadAttention(core, **shape)
    router = Router(sizes.embed_dim, sizes.num_experts, sizes.top_k)
    return MixtureAttention(core, router, **shape)


class _TorchAttention(nn.Module):
    """Multi-head attention around torch's own fused kernel; no positions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        inner = sizes.query_heads * sizes.head_dim
        self.num_heads = sizes.query_heads
        self.query, self.key, self.value = (
            xavier_linear(sizes.embed_dim, inner, bias=False) for _ in range(3)
        )
        self.output = xavier_linear(inner, sizes.embed_dim, bias=False)

    def forward(self, states: Tensor) -> tuple[Tensor, None]:
        """Attend within the sentences of `(batch, length, embed_dim)`."""
        query, key, value = (
            project(states).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        context = F.scaled_dot_product_attention(query, key, value)
        return self.output(context.transpose(1, 2).flatten(2)), None


def steps(
    sizes: Sizes, length: int, conditions: Conditions, variants: Sequence[str] = VARIANTS
) -> dict[str, Step]:
    """A forward and a backward pass of each variant on the same sentences.

    Args:
        sizes: sizes of layers and batch; `lengths` is not read.
        length: tokens of each sentence, a divisor of `tokens`.
        conditions: device and dtype.
        variants: which of `VARIANTS`.

    Raises:
        InputError: for a bad `top_k`.
    """
    shape = (sizes.tokens // length, length, sizes.embed_dim)
    states = torch.randn(shape, device=conditions.device, requires_grad=True)
    gradient = torch.randn_like(states)
    result = {}
    for variant in variants:
        module: nn.Module
        if variant == "torch":
            module = _TorchAttention(sizes)
        else:
            kind, _, rest = variant.partition("_")
            attention = _attention(sizes, mixture=kind == "mixture", window=not rest)
            module = WholeSentences(attention)
        module = module.to(conditions.device)
        result[variant] = layer_step(module, states, gradient, conditions)
    return result


def check_length(length: int, tokens: int, name: str, tokens_name: str) -> None:
    """Refuse sentences that do not fill a batch; the names are those of the flags."""
    check(tokens % length == 0, name, f"a divisor of `{tokens_name}` ({tokens})", length)


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure all variants at all lengths.

    Raises:
        InputError: if a length does not divide `tokens`, for a bad `top_k` or architecture.
    """
    for kind in sizes.kinds:
        check_choice("--kinds", kind, KINDS)
    for names, kinds in _SIZES_OF.items():
        if not set(kinds) & set(sizes.kinds):
            refuse_changed(sizes, names, f"only --kinds {' or '.join(kinds)} has such sizes")
    sizes = sizes.resolved()
    report = Report("attention", sizes, conditions)
    for length in sizes.lengths:
        check_length(length, sizes.tokens, "--lengths", "--tokens")
    torch.manual_seed(conditions.seed)
    for length in sizes.lengths:
        if "mixture" in sizes.kinds:
            _add_mixture(report, sizes, length)
        if "geometric" in sizes.kinds:
            _add_geometric(report, sizes, length)
        if "compositional" in sizes.kinds:
            shape = compositional.Shape(
                sizes.embed_dim, sizes.searches, sizes.head_dim, sizes.retrieval_dim
            )
            batch = sizes.tokens // length
            compositional.add(report, shape, sizes.retrievals, batch=batch, length=length)
    return report


def _add_mixture(report: Report, sizes: Sizes, length: int) -> None:
    """Mixture, dense and torch's own attention, with and without a window."""
    variants = steps(sizes, length, report.conditions)
    peaks = {name: peak_bytes(step, report.conditions) for name, step in variants.items()}
    timings = measure(variants, report.conditions, description=f"attention, length {length}")
    report.add_times(
        timings,
        macs={name: 3 * sizes.tokens * sizes.macs(name, length) for name in variants},
        tokens=dict.fromkeys(variants, sizes.tokens),
        peaks=peaks,
        suffix=f"_{length}",
    )
    fused = "torch's fused attention, both without window"
    window = "attention with / without window"
    for name, other, own, meaning in (
        ("mixture_to_dense", "dense", "mixture", "throughput of mixture / dense attention"),
        ("mixture_to_torch", "torch", "mixture_no_window", f"throughput of mixture / {fused}"),
        ("dense_to_torch", "torch", "dense_no_window", f"throughput of dense / {fused}"),
        ("window_cost", "mixture", "mixture_no_window", f"time of mixture {window}"),
        ("dense_window_cost", "dense", "dense_no_window", f"time of dense {window}"),
    ):
        report.add_ratio(f"{name}_{length}", timings.ratio(other, own), meaning)
    report.add_ratio(
        f"memory_mixture_to_dense_{length}",
        peaks["mixture"] / peaks["dense"],
        "peak memory of mixture / dense attention",
    )


def _add_geometric(report: Report, sizes: Sizes, length: int) -> None:
    """Geometric and softmax attention of `num_heads` heads, from queries to contexts."""
    conditions = report.conditions
    variants = geometric.steps(
        batch=sizes.tokens // length,
        length=length,
        num_heads=sizes.num_heads,
        head_dim=sizes.head_dim,
        conditions=conditions,
    )
    peaks = {name: peak_bytes(step, conditions) for name, step in variants.items()}
    timings = measure(variants, conditions, description=f"geometric attention, length {length}")
    report.add_times(timings, peaks=peaks, suffix=f"_{length}")
    for form in ("", "_causal"):
        ours, other = f"geometric{form}", f"softmax{form}"
        meaning = f"geometric / softmax attention{form.replace('_', ', ')}"
        report.add_ratio(
            f"{ours}_to_softmax_{length}", timings.ratio(ours, other), f"time of {meaning}"
        )
        report.add_ratio(
            f"memory_{ours}_to_softmax_{length}",
            peaks[ours] / peaks[other],
            f"peak memory of {meaning}",
        )
