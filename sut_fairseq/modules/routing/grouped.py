"""Expert products as one grouped matrix product: the backend for GPUs.

Shapes depend on the number of tokens only, never on the routing decision, and nothing here waits
for the device: a training step runs without synchronisation. (For what torch's grouped_mm
does for precisions and devices without a kernel, see `docs/benchmarks.md`.)
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
    product = _GroupedProduct.apply(rows, weight, dispatch.offsets, dispatch.outside)
    if bias is None:
        return product
    # A product with one-hot rows: its gradient is a product too, while that of indexing would be a
    # scattered addition. The row of an inactive token is all 0.
    one_hot = dispatch.experts.unsqueeze(1) == torch.arange(bias.shape[0], device=bias.device)
    return torch.addmm(product, one_hot.to(bias.dtype), bias)


class _GroupedProduct(torch.autograd.Function):
    """rows_e W_e, 0 where `outside` `(num_rows, 1)` is True: beyond the last segment.

    torch's grouped_mm leaves such rows undefined (0 times NaN is NaN), in its result and in the
    gradient of its rows, takes only contiguous gradients, and can be compiled only in bfloat16.
    Blanking rows with autograd would take 1.1 to 1.3 times as long, forward and backward, on a CPU,
    and 1.7 times the memory (4,096 tokens of 512, 4 experts each, a quarter inactive).
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, offsets: Tensor, outside: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(rows, weight, offsets, outside)
        return _blank(_product(rows, weight, offsets), outside)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, weight, offsets, outside = ctx.saved_tensors
        gradient = gradient.contiguous()
        rows_gradient = _blank(_product(gradient, weight.transpose(1, 2), offsets), outside)
        return rows_gradient, _product(rows.T, gradient, offsets), None, None


def _blank(rows: Tensor, outside: Tensor | None) -> Tensor:
    if outside is None:
        return rows
    if torch.compiler.is_compiling():
        # torch 2.11 loses in-place writes while it traces the gradient of a custom function.
        return rows.masked_fill(outside, 0)
    return rows.masked_fill_(outside, 0)


def _product(left: Tensor, right: Tensor, offsets: Tensor) -> Tensor:
    """Product of each segment, in any precision that grouped_mm takes.

    Args:
        left: rows of all segments `(num_rows, d)`, or their transpose `(d, num_rows)`.
        right: a matrix for each segment `(num_segments, d, out)`, or, with the transpose, rows
            `(num_rows, out)`.
        offsets: end of each segment, `(num_segments,)`, int32.

    Returns:
        `(num_rows, out)`, or, with the transpose, a matrix for each segment
        `(num_segments, d, out)`.
    """
    # torch's own shape function supports only bfloat16.
    if torch.compiler.is_compiling() or (left.is_meta and left.dtype != torch.bfloat16):
        return _traced_product(left, right, offsets)
    return F.grouped_mm(left, right, offs=offsets)


@torch.library.custom_op(
    "sut_fairseq::grouped_mm",
    mutates_args=(),
    device_types=("cpu", "cuda"),
    schema="(Tensor left, Tensor right, Tensor offsets) -> Tensor",
)
def _traced_product(left: Tensor, right: Tensor, offsets: Tensor) -> Tensor:
    """grouped_mm as an operator that can be traced in any precision.

    Calling an operator made in Python costs 0.1 ms more, so only compiled code does.
    """
    return F.grouped_mm(left, right, offs=offsets)


@_traced_product.register_fake
def _product_shape(left: Tensor, right: Tensor, offsets: Tensor) -> Tensor:
    if right.dim() == 3:
        return left.new_empty(left.shape[0], right.shape[2])
    return left.new_empty(offsets.shape[0], left.shape[0], right.shape[1])


class _SortTokens(torch.autograd.Function):
    """tokens[dispatch.tokens]; the gradient of a token is summed over its choices in their order.

    The backward pass is a gather with a sum: on a GPU scattered additions would be in no
    fixed order, and forward and backward pass would take 1.5 times as long (H100, 16,384 tokens of
    512 in bfloat16, 4 experts each: 0.35 instead of 0.23 ms).
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
    """Weighted sum of each token's rows, without a copy of the rows in token order.

    With such a copy forward and backward pass take 1.6 times as long on an H100 (16,384 tokens of
    512 in bfloat16, 4 experts each: 0.74 instead of 0.47 ms), 1.9 times on a CPU (4,096 tokens),
    and 1.4 times the memory.
    """

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
