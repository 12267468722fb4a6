"""The order in which tokens meet their experts, and gathers whose gradients are gathers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Dispatch(NamedTuple):
    """The order that puts the (token, choice) pairs of a routing decision next to their experts.

    Pair p belongs to token p // top_k. Sorted rows are grouped by expert, in expert order.

    Attributes:
        order: pair at each sorted row, `(num_tokens * top_k,)`.
        inverse: sorted row of each pair, `(num_tokens * top_k,)`.
        offsets: end of each expert's segment in the sorted rows, `(num_experts,)`, int32.
        top_k: number of choices per token.
    """

    order: Tensor
    inverse: Tensor
    offsets: Tensor
    top_k: int

    @classmethod
    def from_indices(cls, expert_indices: Tensor, num_experts: int) -> Dispatch:
        """Sort `(num_tokens, top_k)` expert indices; a stable sort keeps results reproducible."""
        flat = expert_indices.reshape(-1)
        sorted_experts, order = flat.sort(stable=True)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel(), device=order.device)
        boundaries = torch.arange(num_experts, device=flat.device)
        offsets = torch.searchsorted(sorted_experts, boundaries, right=True, out_int32=True)
        return cls(order, inverse, offsets, expert_indices.shape[1])

    def sort_tokens(self, tokens: Tensor) -> Tensor:
        """Repeat each token for its choices and sort: `(num_tokens, d)` -> `(num_pairs, d)`."""
        return _SortTokens.apply(tokens, self.order, self.inverse, self.top_k)

    def sort_pairs(self, pairs: Tensor) -> Tensor:
        """Sort what is there once for each choice: `(num_tokens, top_k, d)` -> `(num_pairs, d)`."""
        return _Permute.apply(pairs.flatten(0, 1), self.order, self.inverse)

    def unsort(self, rows: Tensor) -> Tensor:
        """Undo the sorting: `(num_pairs, d)` -> `(num_tokens, top_k, d)`."""
        rows = _Permute.apply(rows, self.inverse, self.order)
        return rows.view(-1, self.top_k, rows.shape[-1])

    def combine(self, rows: Tensor, expert_weights: Tensor) -> Tensor:
        """Sum each token's rows with its weights `(num_tokens, top_k)`: -> `(num_tokens, d)`.

        Unsorting first costs a copy but sums in a fixed order, unlike scattered additions.
        """
        return (expert_weights.unsqueeze(-1) * self.unsort(rows)).sum(dim=1)


class _Permute(torch.autograd.Function):
    """rows[order] for a permutation: the gradient is a gather too, not a scattered addition."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient.index_select(0, inverse), None, None


class _SortTokens(torch.autograd.Function):
    """tokens[order // top_k]; the gradient of a token is summed over its choices in their order."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, order: Tensor, inverse: Tensor, top_k: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.top_k = top_k
        return tokens.index_select(0, order.div(top_k, rounding_mode="floor"))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        by_token = gradient.index_select(0, inverse).view(-1, ctx.top_k, gradient.shape[-1])
        return by_token.sum(dim=1), None, None, None


class SegmentProducts(torch.autograd.Function):
    """rows_e W_e (+ b_e) for each expert's segment of the rows, one product after the other.

    Each product is written to its place, and so are the gradients: nothing is concatenated, and no
    expert has a gradient of its own that would have to be stacked (W[e] would have one of the size
    of W).
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None, ends: list[int]
    ) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.ends = ends
        result = rows.new_empty(rows.shape[0], weight.shape[2])
        for expert, segment in enumerate(_segments(ends)):
            if bias is None:
                torch.mm(rows[segment], weight[expert], out=result[segment])
            else:
                torch.addmm(bias[expert], rows[segment], weight[expert], out=result[segment])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        rows_gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        weight_gradient = torch.empty_like(weight, memory_format=torch.contiguous_format)
        bias_gradient = None
        if ctx.needs_input_grad[2]:
            bias_gradient = weight.new_empty(weight.shape[0], weight.shape[2])
        for expert, segment in enumerate(_segments(ctx.ends)):
            torch.mm(gradient[segment], weight[expert].T, out=rows_gradient[segment])
            torch.mm(rows[segment].T, gradient[segment], out=weight_gradient[expert])
            if bias_gradient is not None:
                torch.sum(gradient[segment], dim=0, out=bias_gradient[expert])
        return rows_gradient, weight_gradient, bias_gradient, None


def _segments(ends: list[int]) -> Iterator[slice]:
    return map(slice, [0, *ends[:-1]], ends)


class ContiguousGradient(torch.autograd.Function):
    """Identity whose gradient is made contiguous: grouped_mm's backward refuses zero strides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()
