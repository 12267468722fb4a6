"""From scores by relative offset to scores by key."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
    on_cpu = by_offset.device.type == "cpu"
    if num_keys <= (2 * num_offsets if on_cpu else (num_offsets + 1) // 2):
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
