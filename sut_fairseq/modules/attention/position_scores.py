"""Position-dependent terms that are added to the content scores of self-attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sut_fairseq.modules.errors import check


class RelativeWindow(nn.Module):
    """Learned relative position embeddings within a window (SUT 3.1; Shaw et al. 2018).

    score(i, j) = q_i . r[clip(j - i, -W, W)] / sqrt(head_dim), with embeddings r per head,
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

    def forward(self, queries: Tensor, positions: Tensor, num_keys: int, furthest: int) -> Tensor:
        """Score all keys for each query.

        Args:
            queries: `(batch, num_heads, width, top_k, head_dim)`.
            positions: position of each query among the keys, `(batch, width)`.
            num_keys: number of keys.
            furthest: upper bound of `positions`, so that only offsets that can occur are computed.

        Returns:
            `(batch, num_heads, width, top_k, num_keys)`.
        """
        lowest = max(-self.window, -furthest)
        highest = 0 if self.causal else min(self.window, num_keys - 1)
        embedding = self.embedding[:, lowest + self.window : highest + self.window + 1]
        embedding = embedding.to(queries.dtype) * queries.shape[-1] ** -0.5
        by_offset = queries.flatten(2, 3) @ embedding.transpose(1, 2)
        by_offset = by_offset.view(*queries.shape[:4], -1)
        first = positions + lowest
        # No gradient comes back from later keys of a causal attention.
        may_clip = furthest > -lowest or (not self.causal and num_keys - 1 > highest)
        return _ByKey.apply(by_offset, first, num_keys, may_clip)


class _ByKey(torch.autograd.Function):
    """From scores by offset `(batch, heads, width, top_k, num_offsets)` to scores by key.

    Score of key j: that of offset number clip(j - first), where `first` `(batch, width)` is the
    key that offset number 0 points at. The gradient is a gather too, not a scattered addition,
    but for the outermost offsets, which sum up all that was clipped to them.
    """

    @staticmethod
    def forward(
        ctx: Any, by_offset: Tensor, first: Tensor, num_keys: int, may_clip: bool
    ) -> Tensor:
        ctx.save_for_backward(first)
        ctx.num_offsets, ctx.may_clip = by_offset.shape[-1], may_clip
        keys = torch.arange(num_keys, device=first.device)
        number = (keys - first.unsqueeze(-1)).clamp_(0, ctx.num_offsets - 1)
        return by_offset.gather(-1, _for_all_heads(number, by_offset))

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
    """`(batch, width, n)` as an index into the last axis of `(batch, heads, width, top_k, m)`."""
    return index[:, None, :, None].expand(-1, like.shape[1], -1, like.shape[3], -1)


class RelativeBuckets(nn.Module):
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

    def forward(self, queries: Tensor, positions: Tensor, num_keys: int, furthest: int) -> Tensor:
        """Score all keys for each query; arguments and result as in `RelativeWindow`."""
        key_positions = torch.arange(num_keys, device=positions.device)
        bias = self.bias[:, self.bucket(key_positions - positions.unsqueeze(-1))]
        return bias.transpose(0, 1).unsqueeze(3).to(queries.dtype)
