"""Per-expert linear maps over tokens sorted by expert, with two interchangeable backends."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.errors import check_choice

BACKENDS = ("auto", "loop", "grouped")


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
        return torch.bmm(expert_weights.unsqueeze(1), self.unsort(rows)).squeeze(1)


class _Permute(torch.autograd.Function):
    """rows[order] for a permutation: the gradient is a gather too, not a scattered addition."""

    @staticmethod
    def forward(ctx, rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient.index_select(0, inverse), None, None


class _SortTokens(torch.autograd.Function):
    """tokens[order // top_k]; the gradient of a token is summed over its choices in their order."""

    @staticmethod
    def forward(ctx, tokens: Tensor, order: Tensor, inverse: Tensor, top_k: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.top_k = top_k
        return tokens.index_select(0, order.div(top_k, rounding_mode="floor"))

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        by_token = gradient.index_select(0, inverse).view(-1, ctx.top_k, gradient.shape[-1])
        return by_token.sum(dim=1), None, None, None


class ExpertLinear(nn.Module):
    """One linear map per expert, y = x W_e (+ b_e), applied to rows sorted by expert.

    All experts live in stacked parameters, so the training graph is the same whichever experts a
    batch uses.

    Args:
        num_experts: number of maps.
        in_features, out_features: sizes of x and y.
        bias: whether each map has a bias.
        backend: "loop" (one matrix product per expert; any dtype), "grouped" (one
            `torch.nn.functional.grouped_mm`; float32, bfloat16 or float16, sizes in multiples of
            16 bytes) or "auto": grouped on CUDA where it applies, else the loop, which is the
            faster of the two on a CPU.
    """

    def __init__(
        self,
        num_experts: int,
        in_features: int,
        out_features: int,
        *,
        bias: bool,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_choice("expert_backend", backend, BACKENDS)
        self.num_experts = num_experts
        self.in_features = in_features
        self.out_features = out_features
        self.backend = backend
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(num_experts, out_features)) if bias else None
        # Xavier per expert, as for a dense nn.Linear of one expert's size.
        bound = math.sqrt(6 / (in_features + out_features))
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Apply to each row the map of its expert.

        Args:
            rows: sorted by expert, `(num_rows, in_features)`.
            offsets: end of each expert's segment, `(num_experts,)`, int32; the last is `num_rows`.

        Returns:
            `(num_rows, out_features)`, in the autocast dtype if autocasting.
        """
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled(rows.device.type):
            # Autocast does not know grouped_mm, so both backends cast by hand, alike.
            dtype = torch.get_autocast_dtype(rows.device.type)
            rows, weight = rows.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        if self._use_grouped(rows):
            return self._grouped(rows, offsets, weight, bias)
        return self._loop(rows, offsets, weight, bias)

    def _use_grouped(self, rows: Tensor) -> bool:
        if self.backend != "auto":
            return self.backend == "grouped"
        aligned = all(
            size * rows.element_size() % 16 == 0 for size in (self.in_features, self.out_features)
        )
        supported = rows.dtype in (torch.bfloat16, torch.float16, torch.float32)
        return rows.is_cuda and aligned and supported and hasattr(F, "grouped_mm")

    def _loop(self, rows: Tensor, offsets: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # unbind, not indexing: weight[e] would give every expert a full-size gradient.
        weights = weight.unbind(0)
        biases = [None] * self.num_experts if bias is None else list(bias.unbind(0))
        ends = offsets.tolist()
        sizes = [end - start for start, end in zip([0, *ends[:-1]], ends)]
        parts = [
            x @ w if b is None else torch.addmm(b, x, w)
            for x, w, b in zip(rows.split(sizes), weights, biases)
        ]
        return torch.cat(parts)

    def _grouped(self, rows: Tensor, offsets: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        product = F.grouped_mm(_ContiguousGradient.apply(rows), weight, offs=offsets)
        product = _ContiguousGradient.apply(product)
        if bias is None:
            return product
        row_index = torch.arange(rows.shape[0], device=rows.device, dtype=offsets.dtype)
        return product + bias[torch.searchsorted(offsets, row_index, right=True)]

    def extra_repr(self) -> str:
        return (
            f"num_experts={self.num_experts}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, {self.backend}"
        )


class _ContiguousGradient(torch.autograd.Function):
    """Identity whose gradient is made contiguous: grouped_mm's backward refuses zero strides."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient.contiguous()
