"""Plain autograd forms of functions with a hand-written backward pass: same results and gradients.

Geometric attention's plain form is part of the package, `geometric_reference`; those of `_Permute`
and `_SortTokens` are an `index_select`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sut_fairseq.modules.routing.dispatch import Dispatch


def combine(rows: Tensor, expert_weights: Tensor, dispatch: Dispatch) -> Tensor:
    """`grouped._Combine`."""
    by_token = rows.index_select(0, dispatch.inverse).view(*expert_weights.shape, -1)
    return (by_token * expert_weights.unsqueeze(-1)).sum(dim=1)


def grouped_product(rows: Tensor, weight: Tensor, offsets: Tensor, outside: Tensor) -> Tensor:
    """`grouped._GroupedProduct`, for contiguous gradients."""
    product = F.grouped_mm(rows.masked_fill(outside, 0), weight, offs=offsets)
    return product.masked_fill(outside, 0)


def expert_input(tokens: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch) -> Tensor:
    """`segments.SegmentInput`."""
    return _products(tokens.index_select(0, dispatch.tokens), weight, bias, dispatch)


def expert_output(
    rows: Tensor, expert_weights: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch
) -> Tensor:
    """`segments.SegmentOutput`."""
    return combine(_products(rows, weight, bias, dispatch), expert_weights, dispatch)


def _products(rows: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch) -> Tensor:
    """Each expert's rows times its matrix; 0 where inactive."""
    *segments, inactive = rows.split(dispatch.sizes)
    products = [own @ expert for own, expert in zip(segments, weight.unbind())]
    if bias is not None:
        products = [product + own for product, own in zip(products, bias.unbind())]
    return torch.cat([*products, inactive.new_zeros(len(inactive), weight.shape[2])])


def by_key(by_offset: Tensor, first: Tensor, num_keys: int) -> Tensor:
    """`by_key`."""
    keys = torch.arange(num_keys, device=first.device)
    number = (keys - first.unsqueeze(-1)).clamp(0, by_offset.shape[-1] - 1)
    shape = (*by_offset.shape[:2], -1, by_offset.shape[3], -1)
    return by_offset.gather(-1, number[:, None, :, None].expand(shape))
