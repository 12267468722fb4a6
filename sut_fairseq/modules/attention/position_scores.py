"""Kinds of scores of self-attention in which positions count, by what is learned for offsets."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sut_fairseq.errors import check
from sut_fairseq.modules.attention.interface import Pairing


def content_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """q . k of all pairs.

    Args:
        queries: `(batch, num_heads, width, top_k, head_dim)`.
        keys: `(batch, num_heads, num_keys, head_dim)`.

    Returns:
        `(batch, num_heads, width, top_k, num_keys)`.
    """
    scores = queries.flatten(2, 3) @ keys.to(queries.dtype).transpose(2, 3)
    return scores.view(*queries.shape[:4], keys.shape[2])


class PositionScores(nn.Module):
    """Base of the kinds of scores: called with a `Pairing`, they return scores as
    `content_scores` does."""

    def of_states(self, states: Tensor) -> Tensor | None:
        """What the scores need to know about the queries' states.

        Args:
            states: `(num_tokens, embed_dim)`.

        Returns:
            `(num_tokens, num_heads, size)`, or None for nothing.
        """
        return None

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        """Products of size head_dim that each query takes beside those with the keys."""
        return 0


class RelativeWindow(PositionScores):
    """Learned relative position embeddings within a window (SUT 3.1; Shaw et al. 2018).

    score(i, j) = q_i . (k_j + r[clip(j - i, -W, W)]) / sqrt(head_dim), with embeddings r per head,
    initialised to zero.

    Args:
        num_heads: number of heads that have embeddings of their own.
        head_dim: size of a query.
        window: W, the greatest offset that is told apart.
        causal: whether only earlier keys are visible; what later ones would score is undefined.
    """

    def __init__(self, num_heads: int, head_dim: int, window: int, *, causal: bool = False) -> None:
        super().__init__()
        check(window >= 0, "attention_window", "at least 0", window)
        self.window = window
        self.causal = causal
        self.embedding = nn.Parameter(torch.zeros(num_heads, 2 * window + 1, head_dim))

    def forward(self, pairing: Pairing) -> Tensor:
        queries, num_keys, furthest = pairing.queries, pairing.keys.shape[2], pairing.furthest
        lowest, highest = self._offsets(num_keys, furthest)
        embedding = self.embedding[:, lowest + self.window : highest + self.window + 1]
        embedding = embedding.to(queries.dtype) * queries.shape[-1] ** -0.5
        # No gradient comes back from later keys of a causal attention.
        may_clip = furthest > -lowest or (not self.causal and num_keys - 1 > highest)
        by_offset = content_scores(queries, embedding.unsqueeze(0))
        scores = by_key(by_offset, pairing.positions + lowest, num_keys, may_clip=may_clip)
        return content_scores(queries, pairing.keys) + scores

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        lowest, highest = self._offsets(num_keys, furthest)
        return highest - lowest + 1

    def _offsets(self, num_keys: int, furthest: int) -> tuple[int, int]:
        """Lowest and highest offset within the window that can occur."""
        highest = 0 if self.causal else min(self.window, num_keys - 1)
        return max(-self.window, -furthest), highest


def by_key(by_offset: Tensor, first: Tensor, num_keys: int, *, may_clip: bool) -> Tensor:
    """From scores by offset to scores by key.

    Args:
        by_offset: `(batch, num_heads, width, top_k, num_offsets)`.
        first: key that offset number 0 points at, `(batch or 1, width)`; keys beyond the outermost
            offsets get the scores of these.
        num_keys: number of keys.
        may_clip: whether there can be keys beyond them that have a gradient.

    Returns:
        `(batch, num_heads, width, top_k, num_keys)`.
    """
    num_offsets = by_offset.shape[-1]
    # Where few keys are clipped to one offset, and on a GPU none, autograd's gradient is faster.
    if num_keys <= ((num_offsets + 1) // 2 if by_offset.is_cuda else 2 * num_offsets):
        return by_offset.gather(-1, _number(by_offset, first, num_keys))
    return _ByKey.apply(by_offset, first, num_keys, may_clip)


def _number(by_offset: Tensor, first: Tensor, num_keys: int) -> Tensor:
    """Which offset each key has, as an index into the last axis of `by_offset`."""
    keys = torch.arange(num_keys, device=first.device)
    number = (keys - first.unsqueeze(-1)).clamp_(0, by_offset.shape[-1] - 1)
    return _for_all_heads(number, by_offset)


class _ByKey(torch.autograd.Function):
    """See `by_key`. The gradient is a gather too, not a scattered addition, but for the outermost
    offsets, which sum up all that was clipped to them.

    For a window of 64 in sentences of 1,024 tokens forward and backward pass take 1.7 times as long
    without it on a CPU, and in bfloat16 on an H100 15 times (256 tokens: 4 times); in float32
    there they would be faster, but the order of the additions would vary. It takes up to 1.9 times
    the memory.
    """

    @staticmethod
    def forward(
        ctx: Any, by_offset: Tensor, first: Tensor, num_keys: int, may_clip: bool
    ) -> Tensor:
        ctx.save_for_backward(first)
        ctx.num_offsets, ctx.may_clip = by_offset.shape[-1], may_clip
        return by_offset.gather(-1, _number(by_offset, first, num_keys))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (first,) = ctx.saved_tensors
        first, num_keys = first.unsqueeze(-1), gradient.shape[-1]
        keys = first + torch.arange(ctx.num_offsets, device=first.device)
        exists = (keys >= 0) & (keys < num_keys)
        result = gradient.gather(-1, _for_all_heads(keys.clamp(0, num_keys - 1), gradient))
        result = result.mul_(exists[:, None, :, None])
        if ctx.may_clip:
            keys = torch.arange(num_keys, device=first.device)
            below, above = keys < first, keys >= first + ctx.num_offsets
            result[..., 0] += (gradient * below[:, None, :, None]).sum(dim=-1)
            result[..., -1] += (gradient * above[:, None, :, None]).sum(dim=-1)
        return result, None, None, None


def _for_all_heads(index: Tensor, like: Tensor) -> Tensor:
    """`(batch or 1, width, n)` as an index into the last axis of `like`."""
    return index[:, None, :, None].expand(*like.shape[:2], -1, like.shape[3], -1)


class RelativeBuckets(PositionScores):
    """Learned relative position biases in buckets of growing width (T5; Raffel et al. 2020).

    Half of the buckets of one direction hold one offset each; the rest grow logarithmically up to
    `max_distance`, and the last one takes everything beyond.

    Args:
        num_heads: number of heads that have biases of their own.
        num_buckets: number of buckets, shared out between both directions unless causal.
        max_distance: distance from which all offsets share a bucket.
        causal: whether only earlier keys are visible, so that all buckets look backwards.
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, causal: bool
    ) -> None:
        super().__init__()
        check(num_buckets >= 4, "attention_buckets", "at least 4", num_buckets)
        check(
            max_distance > num_buckets // 2,
            "attention_max_distance",
            f"greater than half of `attention_buckets` ({num_buckets})",
            max_distance,
        )
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.causal = causal
        self.bias = nn.Parameter(torch.zeros(num_heads, num_buckets))

    def bucket(self, offset: Tensor) -> Tensor:
        """Bucket of each offset (key position minus query position), any shape, int64."""
        per_direction = self.num_buckets if self.causal else self.num_buckets // 2
        distance = (-offset).clamp(min=0) if self.causal else offset.abs()
        exact = per_direction // 2
        logarithm = torch.log(distance.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        spread = exact + (logarithm * (per_direction - exact)).long()
        within = torch.where(distance < exact, distance, spread.clamp(max=per_direction - 1))
        return within if self.causal else within + (offset > 0) * per_direction

    def forward(self, pairing: Pairing) -> Tensor:
        positions = pairing.positions
        key_positions = torch.arange(pairing.keys.shape[2], device=positions.device)
        bias = self.bias[:, self.bucket(key_positions - positions.unsqueeze(-1))]
        scores = content_scores(pairing.queries, pairing.keys)
        return scores + bias.transpose(0, 1).unsqueeze(3).to(scores.dtype)
