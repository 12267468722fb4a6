"""The order that groups tokens by expert."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dispatch:
    """The order that groups the (token, choice) pairs of a routing decision by expert.

    Pair p belongs to token p // top_k. Sorted rows are grouped by expert, in expert order; the
    pairs of inactive tokens come after the last expert's and belong to none.

    Attributes:
        experts: expert of each sorted row, `(num_pairs,)`; the number of experts where inactive.
        order: pair at each sorted row, `(num_pairs,)`.
        inverse: sorted row of each pair, `(num_pairs,)`.
        tokens: token of each sorted row, `(num_pairs,)`.
        offsets: end of each expert's segment in the sorted rows, `(num_experts,)`, int32.
        top_k: number of choices per token.
        outside: True at the sorted rows of inactive tokens, `(num_pairs, 1)`; None: there are none.
    """

    experts: Tensor
    order: Tensor
    inverse: Tensor
    tokens: Tensor
    offsets: Tensor
    top_k: int
    outside: Tensor | None = None

    @classmethod
    def from_indices(
        cls, expert_indices: Tensor, num_experts: int, active: Tensor | None = None
    ) -> Dispatch:
        """Sort `(num_tokens, top_k)` expert indices; a stable sort keeps results reproducible.

        Args:
            expert_indices: chosen experts.
            num_experts: number of experts to choose from.
            active: which tokens take part, `(num_tokens,)`; None: all.
        """
        # A GPU sorts 8 bits in a pass: 64-bit numbers would take eight.
        expert_indices = expert_indices.to(torch.uint8 if num_experts < 256 else torch.int32)
        if active is not None:
            expert_indices = expert_indices.masked_fill(~active.unsqueeze(1), num_experts)
        experts, order = expert_indices.reshape(-1).sort(stable=True)
        boundaries = torch.arange(num_experts, dtype=experts.dtype, device=experts.device)
        offsets = torch.searchsorted(experts, boundaries, right=True, out_int32=True)
        top_k = expert_indices.shape[1]
        return cls(
            experts=experts,
            order=order,
            inverse=torch.empty_like(order).index_copy_(
                0, order, torch.arange(order.numel(), device=order.device)
            ),
            tokens=order.div(top_k, rounding_mode="floor"),
            offsets=offsets,
            top_k=top_k,
            outside=None if active is None else (experts == num_experts).unsqueeze(1),
        )

    @cached_property
    def sizes(self) -> list[int]:
        """Number of rows of each expert and of the inactive tokens, `num_experts + 1` numbers.

        Read from the device once for all layers that share the decision.
        """
        ends: list[int] = [0, *self.offsets.tolist(), self.order.numel()]
        return [end - start for start, end in zip(ends, ends[1:])]

    def sort_pairs(self, pairs: Tensor) -> Tensor:
        """Sort values given for each choice: `(num_tokens, top_k, d)` -> `(num_pairs, d)`."""
        return _Permute.apply(pairs.flatten(0, 1), self.order, self.inverse)

    def unsort(self, rows: Tensor) -> Tensor:
        """Undo the sorting: `(num_pairs, d)` -> `(num_tokens, top_k, d)`."""
        rows = _Permute.apply(rows, self.inverse, self.order)
        return rows.view(-1, self.top_k, rows.shape[-1])


class _Permute(torch.autograd.Function):
    """rows[order] for a permutation: the gradient is a gather too, not a scattered addition.

    Without it forward and backward pass take 1.9 times as long on an H100 (16,384 tokens of 512 in
    bfloat16, 4 experts each: 0.39 instead of 0.21 ms), and equally long on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient.index_select(0, inverse), None, None
