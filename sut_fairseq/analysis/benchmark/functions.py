"""Functions whose gradient is written by hand against their plain form: time and peak memory.

The plain form leaves the gradient to autograd.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.analysis.benchmark import plain
from sut_fairseq.analysis.benchmark.peak import added_bytes
from sut_fairseq.analysis.benchmark.report import Report, size
from sut_fairseq.analysis.benchmark.steps import Step
from sut_fairseq.analysis.benchmark.timing import Conditions, measure
from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.attention.distributions.geometric import geometric, geometric_to_the_left
from sut_fairseq.modules.attention.distributions.geometric_reference import geometric_reference
from sut_fairseq.modules.attention.positions.by_key import by_key
from sut_fairseq.modules.routing.dispatch import Dispatch, _Permute
from sut_fairseq.modules.routing.grouped import _Combine, _GroupedProduct, _SortTokens
from sut_fairseq.modules.routing.segments import SegmentInput, SegmentOutput

REPETITIONS = 15

# Shortest duration of a repetition, in seconds, so that reading the clock costs next to nothing.
_LEAST_TIME = 0.003


@dataclass(frozen=True)
class Setting:
    """Sizes at which a function is called.

    Attributes:
        tokens: tokens of the batch.
        keys: keys that each token attends to; if `trains`, also the length of a sentence.
        embed_dim: size of a token's state and of an expert's hidden layer.
        num_experts, top_k: number of experts, and of those that each token uses.
        num_heads: heads of attention; of the mixture, those of each expert.
        window: greatest offset of relative positions.
        trains: whether the backward pass is measured, too. If not, each token is the last one of
            its sentence, as in decoding.
    """

    tokens: int
    keys: int
    embed_dim: int
    num_experts: int
    top_k: int
    num_heads: int
    window: int
    trains: bool = True


_BASE = Setting(4096, 64, embed_dim=512, num_experts=24, top_k=4, num_heads=4, window=64)

SETTINGS = {
    "base": _BASE,
    "base_256": replace(_BASE, keys=256),
    "base_1024": replace(_BASE, keys=1024),
    "small": Setting(2048, 32, embed_dim=64, num_experts=8, top_k=2, num_heads=2, window=16),
    "decode": replace(_BASE, tokens=640, keys=32, trains=False),
    "decode_one": replace(_BASE, tokens=5, keys=32, trains=False),
    "tiny": Setting(24, 8, embed_dim=8, num_experts=3, top_k=2, num_heads=2, window=1),
}
_LENGTHS = ("base_256", "base_1024")


# Makes a tensor of random numbers of a given shape that gets a gradient.
New = Callable[..., Tensor]


@dataclass(frozen=True)
class Pair:
    """A function, its plain form, and the tensors that both are called with."""

    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]


def _dispatch(at: Setting, active: Tensor | None = None) -> Dispatch:
    scores = torch.rand(at.tokens, at.num_experts)
    return Dispatch.from_indices(scores.topk(at.top_k).indices, at.num_experts, active)


def _permute(at: Setting, new: New) -> Pair:
    dispatch = _dispatch(at)
    return Pair(
        lambda rows: _Permute.apply(rows, dispatch.order, dispatch.inverse),
        lambda rows: rows.index_select(0, dispatch.order),
        (new(at.tokens * at.top_k, at.embed_dim),),
    )


def _sort_tokens(at: Setting, new: New) -> Pair:
    dispatch = _dispatch(at)
    return Pair(
        lambda tokens: _SortTokens.apply(tokens, dispatch),
        lambda tokens: tokens.index_select(0, dispatch.tokens),
        (new(at.tokens, at.embed_dim),),
    )


def _combine(at: Setting, new: New) -> Pair:
    dispatch = _dispatch(at)
    return Pair(
        lambda rows, weights: _Combine.apply(rows, weights, dispatch),
        lambda rows, weights: plain.combine(rows, weights, dispatch),
        (new(at.tokens * at.top_k, at.embed_dim), new(at.tokens, at.top_k)),
    )


def _grouped_product(at: Setting, new: New) -> Pair:
    """With a quarter of the tokens inactive."""
    dispatch = _dispatch(at, torch.arange(at.tokens) % 4 > 0)
    outside = (dispatch.experts == at.num_experts).unsqueeze(1)
    weight, _ = _parameters(at, new)
    return Pair(
        lambda rows, w: _GroupedProduct.apply(rows, w, dispatch.offsets, outside),
        lambda rows, w: plain.grouped_product(rows, w, dispatch.offsets, outside),
        (new(at.tokens * at.top_k, at.embed_dim), weight),
    )


def _expert_input(at: Setting, new: New) -> Pair:
    dispatch = _dispatch(at)
    weight, bias = _parameters(at, new)
    return Pair(
        lambda tokens, w, b: SegmentInput.apply(tokens, w, b, dispatch),
        lambda tokens, w, b: plain.expert_input(tokens, w, b, dispatch),
        (new(at.tokens, at.embed_dim), weight, bias),
    )


def _expert_output(at: Setting, new: New) -> Pair:
    dispatch = _dispatch(at)
    rows, expert_weights = new(at.tokens * at.top_k, at.embed_dim), new(at.tokens, at.top_k)
    return Pair(
        lambda rows, g, w, b: SegmentOutput.apply(rows, g, w, b, dispatch),
        lambda rows, g, w, b: plain.expert_output(rows, g, w, b, dispatch),
        (rows, expert_weights, *_parameters(at, new)),
    )


def _parameters(at: Setting, new: New) -> tuple[Tensor, Tensor]:
    return new(at.num_experts, at.embed_dim, at.embed_dim), new(at.num_experts, at.embed_dim)


def _positions(at: Setting) -> Tensor:
    return torch.arange(0 if at.trains else at.keys - 1, at.keys).unsqueeze(0)


def _by_key(at: Setting, new: New) -> Pair:
    positions = _positions(at)
    lowest = -min(at.window, at.keys - 1)
    num_offsets = 1 - lowest - (lowest if at.trains else 0)
    first = positions + lowest
    shape = at.tokens // positions.numel(), at.num_heads, positions.numel(), at.top_k
    return Pair(
        lambda scores: by_key(scores, first, at.keys, may_clip=at.window < at.keys - 1),
        lambda scores: plain.by_key(scores, first, at.keys),
        (new(*shape, num_offsets),),
    )


def _geometric(at: Setting, new: New, *, causal: bool = False) -> Pair:
    positions = _positions(at)
    ours = geometric_to_the_left if causal else geometric
    return Pair(
        lambda scores: ours(scores, None, positions),
        lambda scores: geometric_reference(scores, None, positions, causal=causal),
        (new(at.tokens // positions.numel(), at.num_heads, positions.numel(), 1, at.keys),),
    )


FUNCTIONS: dict[str, Callable[[Setting, New], Pair]] = {
    "permute": _permute,
    "sort_tokens": _sort_tokens,
    "combine": _combine,
    **({"grouped_product": _grouped_product} if hasattr(F, "grouped_mm") else {}),
    "expert_input": _expert_input,
    "expert_output": _expert_output,
    "by_key": _by_key,
    "geometric": _geometric,
    "geometric_to_the_left": partial(_geometric, causal=True),
}
# Those whose cost depends on the number of keys.
ATTENTION = ("by_key", "geometric", "geometric_to_the_left")


@dataclass(frozen=True)
class Sizes:
    """Which functions, and at which sizes."""

    functions: tuple[str, ...] = size(tuple(FUNCTIONS), "functions to measure")
    settings: tuple[str, ...] = size(
        ("base", "base_256", "base_1024", "small", "decode", "decode_one"),
        "sizes to measure at: base (4,096 tokens, states of 512, sentences of 64, or base_256 and "
        "base_1024), small (2,048 tokens, states of 64, sentences of 32), decode (one new token of "
        "640 hypotheses), decode_one (of 5), tiny",
    )


class _Forward(Step):
    """The forward pass alone, as in decoding."""

    def forward_backward(self) -> None:
        with torch.no_grad():
            self.forward()


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure each function and its plain form at each setting.

    On a CPU, times are CPU time of this process, summed over its threads, whatever else the machine
    does.

    Raises:
        InputError: for an unknown function or setting, or if no setting applies to the functions.
    """
    for name in sizes.functions:
        check_choice("--functions", name, tuple(FUNCTIONS))
    for name in sizes.settings:
        check_choice("--settings", name, tuple(SETTINGS))
    report = Report("functions", sizes, conditions)
    report.settings["clock"] = "wall" if conditions.device.type == "cuda" else "process"
    torch.manual_seed(conditions.seed)
    for setting in sizes.settings:
        for function in sizes.functions:
            if setting not in _LENGTHS or function in ATTENTION:
                _measure(report, function, setting)
    of_all = [name for name in SETTINGS if name not in _LENGTHS]  # the others: attention alone
    needed = f"among {', '.join(of_all)} for {' '.join(sizes.functions)}"
    check(bool(report.variants), "--settings", needed, " ".join(sizes.settings))
    return report


def _measure(report: Report, function: str, setting: str) -> None:
    conditions = report.conditions
    at, name = SETTINGS[setting], f"{function}_{setting}"
    with conditions.device:
        pair = FUNCTIONS[function](at, lambda *shape: _leaf(shape, conditions.dtype))
    ours = _step(pair.ours, pair.inputs, at.trains)
    steps = {name: ours, f"{name}_plain": _step(pair.plain, pair.inputs, at.trains)}
    peaks = {variant: added_bytes(step, conditions) for variant, step in steps.items()}
    clock = time.perf_counter if conditions.device.type == "cuda" else time.process_time
    start = clock()
    ours()
    conditions.synchronise()
    calls = 1 + int(_LEAST_TIME / max(clock() - start, 1e-6))
    timings = measure(steps, conditions, description=name, clock=clock, calls=calls)
    report.add_times(timings, peaks=peaks)
    passes = "forward and backward" if at.trains else "forward"
    report.add_ratio(
        name, timings.ratio(f"{name}_plain", name), f"time of the plain form / ours, {passes}"
    )
    report.add_ratio(
        f"memory_{name}",
        peaks[f"{name}_plain"] / peaks[name],
        "memory that the plain form takes beyond its inputs / ours",
    )


def _leaf(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape).to(dtype).requires_grad_()


def _step(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], trains: bool) -> Step:
    with torch.no_grad():
        gradient = torch.randn_like(function(*inputs))

    def forward() -> tuple[list[Tensor], list[Tensor | None]]:
        return [function(*inputs)], [gradient]

    return (Step if trains else _Forward)(nn.Module(), forward, inputs)
