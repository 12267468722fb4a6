"""From scores by relative offset to scores by key."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Offsets up to which products with one-hot matrices are at least about as fast as gathers.
_FEW = 33


def by_key(by_offset: Tensor, first: Tensor, num_keys: int, *, may_clip: bool) -> Tensor:
    """From scores by offset to scores by key.

    Args:
        by_offset: `(batch, num_heads, width, top_k, num_offsets)`.
        first: key that offset number 0 points at, `(batch or 1, width)`; keys beyond the outermost
            offsets get the score of the nearer one.
        num_keys: number of keys.
        may_clip: whether keys beyond the outermost offsets can have a gradient.

    Returns:
        `(batch, num_heads, width, top_k, num_keys)`.
    """
    rows, num_heads, _, _, num_offsets = by_offset.shape
    on_cpu = by_offset.device.type == "cpu"
    if on_cpu and first.shape[0] == 1 and num_offsets <= min(_FEW, rows * num_heads // 2):
        return _as_product(by_offset, first, num_keys)
    # Where few keys are clipped to one offset, and on a GPU none, autograd's gradient is faster.
    if num_keys <= (2 * num_offsets if on_cpu else (num_offsets + 1) // 2):
        return by_offset.gather(-1, _for_all_heads(_number(by_offset, first, num_keys), by_offset))
    return _ByKey.apply(by_offset, first, num_keys, may_clip)


def _as_product(by_offset: Tensor, first: Tensor, num_keys: int) -> Tensor:
    """`by_key` as a matrix product with the one-hot offset of each key, the same in all rows.

    Each sum has a single nonzero term, so the scores are exact. With up to 9 offsets, forward and
    backward pass take a third to two thirds of a gather's time, with 33 about the same, if the
    one-hot matrices are at most half as large as the scores.
    """
    number = _number(by_offset, first, num_keys).transpose(0, 1)
    offsets = torch.arange(by_offset.shape[-1], device=first.device)
    return _times(by_offset, number == offsets.unsqueeze(-1))


def _times(values: Tensor, chosen: Tensor) -> Tensor:
    """Sums of the values that are chosen, as matrix products of one query position at a time.

    Args:
        values: `(batch, num_heads, width, top_k, n)`.
        chosen: `(width, n, num_sums)`, bool.

    Returns:
        `(batch, num_heads, width, top_k, num_sums)`.
    """
    by_position = values.flatten(2, 3).flatten(0, 1).transpose(0, 1)
    matrices = chosen.to(values.dtype).repeat_interleave(values.shape[3], dim=0)
    sums = torch.bmm(by_position, matrices).transpose(0, 1)
    return sums.unflatten(0, values.shape[:2]).unflatten(2, values.shape[2:4])


def _number(by_offset: Tensor, first: Tensor, num_keys: int) -> Tensor:
    """The offset of each key, in the last axis of `by_offset`: `(batch or 1, width, num_keys)`."""
    keys = torch.arange(num_keys, device=first.device)
    return (keys - first.unsqueeze(-1)).clamp_(0, by_offset.shape[-1] - 1)


class _ByKey(torch.autograd.Function):
    """`by_key` with a gradient that is a gather too, not a scattered addition.

    Only the outermost offsets sum the gradients of all keys clipped to them. Without this, forward
    and backward pass for a window of 64 in sentences of 1,024 tokens take 1.7 times as long on a
    CPU, and 15 times in bfloat16 on an H100 (256 tokens: 4 times); in float32 on an H100 they would
    be faster, but in a varying order of additions. The gather takes up to 1.9 times the memory.
    """

    @staticmethod
    def forward(
        ctx: Any, by_offset: Tensor, first: Tensor, num_keys: int, may_clip: bool
    ) -> Tensor:
        ctx.save_for_backward(first)
        ctx.num_offsets, ctx.may_clip = by_offset.shape[-1], may_clip
        return by_offset.gather(-1, _for_all_heads(_number(by_offset, first, num_keys), by_offset))

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
            clipped = keys < first, keys >= first + ctx.num_offsets  # below and above
            if gradient.device.type == "cpu" and len(first) == 1:
                sums = _times(gradient, torch.stack(clipped, dim=-1)[0]).unbind(dim=-1)
            else:
                sums = tuple((gradient * out[:, None, :, None]).sum(dim=-1) for out in clipped)
            result[..., 0] += sums[0]
            result[..., -1] += sums[1]
        return result, None, None, None


def _for_all_heads(index: Tensor, like: Tensor) -> Tensor:
    """`(batch or 1, width, n)` as an index into the last axis of `like`."""
    return index[:, None, :, None].expand(*like.shape[:2], -1, like.shape[3], -1)
