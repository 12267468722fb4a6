"""Expert products as one grouped matrix product: the backend for GPUs.

Shapes depend on the number of tokens only, never on the routing decision, and nothing waits for
the device: a training step runs without synchronisation.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sut_fairseq.modules.routing.dispatch import Dispatch


def grouped_input(
    tokens: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch
) -> Tensor:
    """rows_e = x[tokens of e] W_e (+ b_e): `(num_tokens, d)` -> `(num_pairs, out)`, sorted."""
    rows = _SortTokens.apply(tokens, dispatch)
    return _grouped(rows, weight, bias, dispatch)


def grouped_output(
    rows: Tensor, expert_weights: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch
) -> Tensor:
    """y = sum over a token's rows of g (row W_e + b_e): `(num_pairs, d)` -> `(num_tokens, out)`."""
    return _Combine.apply(_grouped(rows, weight, bias, dispatch), expert_weights, dispatch)


def _grouped(rows: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch) -> Tensor:
    outside = (dispatch.experts == weight.shape[0]).unsqueeze(1) if dispatch.partial else None
    rows = _Border.apply(rows, outside, False)
    product = F.grouped_mm(rows, weight, offs=dispatch.offsets)
    product = _Border.apply(product, outside, True)
    if bias is None:
        return product
    # A product with one-hot rows: its gradient is one as well, where that of indexing would be a
    # scattered addition. An inactive row is 0 everywhere.
    one_hot = dispatch.experts.unsqueeze(1) == torch.arange(bias.shape[0], device=bias.device)
    return torch.addmm(product, one_hot.to(bias.dtype), bias)


class _Border(torch.autograd.Function):
    """Identity on either side of grouped_mm, which is particular about its surroundings.

    It leaves rows beyond the last segment undefined (0 times NaN is NaN), in its result and in
    the gradient of its input; and it takes only contiguous gradients.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, outside: Tensor | None, is_result: bool) -> Tensor:
        ctx.outside, ctx.is_result = outside, is_result
        return x if outside is None or not is_result else x.masked_fill(outside, 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.is_result:
            return gradient.contiguous(), None, None
        if ctx.outside is not None:
            gradient = gradient.masked_fill(ctx.outside, 0)
        return gradient, None, None


class _SortTokens(torch.autograd.Function):
    """tokens[dispatch.tokens]; the gradient of a token is summed over its choices in their order.

    A gather with a sum, like `_Combine`'s: scattered additions would be in no fixed order.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, dispatch: Dispatch) -> Tensor:
        ctx.dispatch = dispatch
        return tokens.index_select(0, dispatch.tokens)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        index = ctx.dispatch.inverse.view(-1, ctx.dispatch.top_k)
        return F.embedding_bag(index, gradient, mode="sum"), None


class _Combine(torch.autograd.Function):
    """Sum of each token's rows with its weights, without a copy of the rows in token order."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, expert_weights: Tensor, dispatch: Dispatch) -> Tensor:
        ctx.save_for_backward(rows, expert_weights)
        ctx.dispatch = dispatch
        index = dispatch.inverse.view_as(expert_weights)
        return F.embedding_bag(index, rows, mode="sum", per_sample_weights=expert_weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, expert_weights = ctx.saved_tensors
        dispatch: Dispatch = ctx.dispatch
        incoming = gradient.index_select(0, dispatch.tokens)
        gates_gradient = (rows * incoming).sum(dim=1).index_select(0, dispatch.inverse)
        gates = expert_weights.flatten().index_select(0, dispatch.order)
        return incoming.mul_(gates.unsqueeze(1)), gates_gradient.view_as(expert_weights), None
