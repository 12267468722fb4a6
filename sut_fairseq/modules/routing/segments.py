"""Expert products one expert after the other: the backend for CPUs, and for any dtype.

Every product and every gradient is written to its place in a buffer for all experts: nothing is
concatenated, and no per-expert gradients have to be stacked. The backward pass gathers what it
needs of the tokens again, expert by expert, into a scratch buffer that stays in the cache, so that
neither the gathered input nor the output of all pairs is kept. Sums over the experts of a token run
in a fixed order: results are reproducible, and the rest of the batch affects only their rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.routing.dispatch import Dispatch

_BLOCK = 512  # rows; see `_rows_in_blocks`


class SegmentInput(torch.autograd.Function):
    """rows_e = x[tokens of e] W_e (+ b_e): `(num_tokens, d)` -> `(num_pairs, out)`, sorted.

    With autograd alone it takes 1.8 times the memory and 1.04 times the time, forward and backward
    (4,096 tokens of 512, 4 of 24 experts each, on a CPU).
    """

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch
    ) -> Tensor:
        ctx.save_for_backward(tokens, weight)
        ctx.dispatch = dispatch
        return _products(tokens.index_select(0, dispatch.tokens), weight, bias, dispatch)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        tokens, weight = ctx.saved_tensors
        dispatch: Dispatch = ctx.dispatch
        gradients = gradient.contiguous().split(dispatch.sizes)
        # In float32 or better, so that a sum over experts is rounded once.
        tokens_gradient = tokens.new_zeros(tokens.shape, dtype=exact_dtype(tokens.dtype))
        weight_gradient, bias_gradient = _parameter_gradients(
            weight, ctx.needs_input_grad[2], dispatch
        )
        scratch = _scratch(tokens, dispatch, tokens.shape[1])
        for expert, index in _used(dispatch):
            own = torch.index_select(tokens, 0, index, out=scratch[: index.numel()])
            incoming = gradients[expert]
            _multiply_transposed(own, incoming, out=weight_gradient[expert])
            if bias_gradient is not None:
                torch.sum(incoming, dim=0, out=bias_gradient[expert])
            _multiply(incoming, weight[expert].T, out=own)
            tokens_gradient.index_add_(0, index, own.to(tokens_gradient.dtype))
        return tokens_gradient.to(tokens.dtype), weight_gradient, bias_gradient, None


class SegmentOutput(torch.autograd.Function):
    """y = sum over a token's rows of g (row W_e + b_e): `(num_pairs, d)` -> `(num_tokens, out)`.

    The products are not kept for the gradient of the weights g, which is
    (row W_e + b_e) . dy = row . (dy W_e^T) + b_e . dy, and dy W_e^T is needed anyway.

    With autograd alone it takes 1.5 times the memory and 1.1 times the time, forward and backward
    (4,096 tokens of 512, 4 of 24 experts each, on a CPU).
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        expert_weights: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        dispatch: Dispatch,
    ) -> Tensor:
        ctx.save_for_backward(rows, expert_weights, weight, bias)
        ctx.dispatch = dispatch
        products = _products(rows, weight, bias, dispatch)
        index = dispatch.inverse.view_as(expert_weights)
        return F.embedding_bag(index, products, mode="sum", per_sample_weights=expert_weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        rows, expert_weights, weight, bias = ctx.saved_tensors
        dispatch: Dispatch = ctx.dispatch
        rows_gradient = torch.empty_like(rows)
        gates = expert_weights.flatten().index_select(0, dispatch.order).unsqueeze(1)
        gates_gradient = torch.zeros_like(gates)
        weight_gradient, bias_gradient = _parameter_gradients(weight, bias is not None, dispatch)
        *outgoing_segments, inactive = rows_gradient.split(dispatch.sizes)
        inactive.zero_()
        segments = rows.split(dispatch.sizes)
        gates_by_expert = gates.split(dispatch.sizes)
        gates_gradients = gates_gradient.split(dispatch.sizes)
        scratch = _scratch(rows, dispatch, weight.shape[2])
        for expert, index in _used(dispatch):
            incoming = torch.index_select(gradient, 0, index, out=scratch[: index.numel()])
            outgoing, own = outgoing_segments[expert], segments[expert]
            _multiply(incoming, weight[expert].T, out=outgoing)
            torch.sum(outgoing * own, dim=1, keepdim=True, out=gates_gradients[expert])
            if bias is not None:
                _add_product(incoming, bias[expert].unsqueeze(1), out=gates_gradients[expert])
            outgoing.mul_(gates_by_expert[expert])
            incoming.mul_(gates_by_expert[expert])
            _multiply_transposed(own, incoming, out=weight_gradient[expert])
            if bias_gradient is not None:
                torch.sum(incoming, dim=0, out=bias_gradient[expert])
        by_pair = torch.empty_like(gates).index_copy_(0, dispatch.order, gates_gradient)
        gradients = rows_gradient, by_pair.view_as(expert_weights)
        return *gradients, weight_gradient, bias_gradient, None


def _used(dispatch: Dispatch) -> Iterator[tuple[int, Tensor]]:
    """Each expert that has rows, and their tokens."""
    for expert, index in enumerate(dispatch.tokens.split(dispatch.sizes)[:-1]):
        if index.numel():
            yield expert, index


def _scratch(like: Tensor, dispatch: Dispatch, width: int) -> Tensor:
    """A buffer for the rows of the busiest expert."""
    return like.new_empty(max(dispatch.sizes[:-1]), width)


def _parameter_gradients(
    weight: Tensor, has_bias: bool, dispatch: Dispatch
) -> tuple[Tensor, Tensor | None]:
    """Buffers for the gradients of all experts; those of experts without rows are 0 already."""
    weight_gradient = torch.empty_like(weight)
    for expert, size in enumerate(dispatch.sizes[:-1]):
        if size == 0:
            weight_gradient[expert].zero_()
    bias_gradient = weight.new_zeros(weight.shape[0], weight.shape[2]) if has_bias else None
    return weight_gradient, bias_gradient


def _products(rows: Tensor, weight: Tensor, bias: Tensor | None, dispatch: Dispatch) -> Tensor:
    """Each expert's rows times its matrix, written to their place; 0 where inactive."""
    result = rows.new_empty(rows.shape[0], weight.shape[2])
    *results, inactive = result.split(dispatch.sizes)
    inactive.zero_()
    biases = repeat(None) if bias is None else bias.unbind()
    parts = zip(rows.split(dispatch.sizes), results, weight.unbind(), biases)
    for own, out, own_weight, own_bias in parts:
        if own.shape[0]:
            _multiply(own, own_weight, own_bias, out=out)
    return result


def _multiply(rows: Tensor, matrix: Tensor, bias: Tensor | None = None, *, out: Tensor) -> None:
    """out = rows matrix (+ bias)."""
    whole = _rows_in_blocks(rows)
    if whole:
        _product(rows[:whole], matrix, bias, out=out[:whole])
    if whole < rows.shape[0]:
        bias = None if bias is None else bias.float()
        with torch.autocast(rows.device.type, enabled=False):  # it would undo `float`
            out[whole:] = _product(rows[whole:].float(), matrix.float(), bias)


def _multiply_transposed(left: Tensor, right: Tensor, *, out: Tensor) -> None:
    """out = left^T right, summed over their rows."""
    whole = _rows_in_blocks(left)
    if whole:
        torch.mm(left[:whole].T, right[:whole], out=out)
    else:
        out.zero_()
    if whole < left.shape[0]:
        out += left[whole:].float().T @ right[whole:].float()


def _add_product(rows: Tensor, matrix: Tensor, *, out: Tensor) -> None:
    """out += rows matrix."""
    whole = _rows_in_blocks(rows)
    if whole:
        out[:whole].addmm_(rows[:whole], matrix)
    if whole < rows.shape[0]:
        out[whole:] += rows[whole:].float() @ matrix.float()


def _product(
    rows: Tensor, matrix: Tensor, bias: Tensor | None, out: Tensor | None = None
) -> Tensor:
    if bias is None:
        return torch.mm(rows, matrix, out=out)
    return torch.addmm(bias, rows, matrix, out=out)


def _rows_in_blocks(rows: Tensor) -> int:
    """How many rows are multiplied in their own dtype; the others in float32.

    On a CPU, torch leaves products in bfloat16 and float16 to oneDNN, which compiles a kernel for
    each shape. That takes several times as long as the product (4.5 ms against 0.4 for the gradient
    of a matrix of 128 x 128 from 3,000 rows), and the number of rows of an expert changes from
    batch to batch. Whole blocks have few shapes; the rest, in float32, needs no kernel of its own.
    """
    num_rows = rows.shape[0]
    if rows.device.type == "cpu" and rows.dtype in (torch.bfloat16, torch.float16):
        return num_rows - num_rows % _BLOCK
    return num_rows
