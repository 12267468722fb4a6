"""The tokens of a padded batch that are still being computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class _DistinctRows(torch.autograd.Function):
    """rows[index] for distinct indices: the gradient is copied where indexing would add it up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.num_rows = rows.shape[0]
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        blank = gradient.new_zeros(ctx.num_rows, *gradient.shape[1:])
        return blank.index_copy_(0, index, gradient), None


@dataclass(frozen=True)
class ActiveTokens:
    """A list of tokens of a `(batch, length)` grid, in row-major order.

    What works on one token at a time (projections, experts, norms, halting) takes the flat list
    `(num_tokens, ...)`: padding and halted tokens are not in it and cost nothing. Attention, which
    works on sentences, takes the list left-aligned by sentence, `(batch, width, ...)`, where width
    is the greatest number of listed tokens in one sentence.

    Attributes:
        batch, length: size of the grid.
        index: position of each token in the flattened grid, `(num_tokens,)`.
        slot: position of each token in the flattened `(batch, width)` arrangement.
        width: see above.
    """

    batch: int
    length: int
    index: Tensor
    slot: Tensor
    width: int

    @classmethod
    def from_index(cls, index: Tensor, batch: int, length: int) -> ActiveTokens:
        """List the tokens at these positions `(num_tokens,)`, ascending, of the flattened grid."""
        row = index // length
        counts = torch.bincount(row, minlength=batch)
        first = counts.cumsum(0) - counts
        rank = torch.arange(index.numel(), device=index.device) - first[row]
        width = int(counts.max()) if index.numel() else 0
        return cls(batch, length, index, row * width + rank, width)

    @classmethod
    def from_mask(cls, active: Tensor) -> ActiveTokens:
        """List the tokens where `active` `(batch, length)` is True."""
        return cls.from_index(active.flatten().nonzero().squeeze(1), *active.shape)

    def __len__(self) -> int:
        return self.index.numel()

    @property
    def column(self) -> Tensor:
        """Position of each token in its sentence, `(num_tokens,)`."""
        return self.index % self.length

    def select(self, chosen: Tensor) -> ActiveTokens:
        """List only the tokens at these ascending places `(num_chosen,)` of the present list."""
        return self.from_index(self.index[chosen], self.batch, self.length)

    def take(self, grid: Tensor) -> Tensor:
        """Read the tokens from `(batch, length, ...)`: -> `(num_tokens, ...)`."""
        flat = grid.flatten(0, 1)
        return flat if len(self) == flat.shape[0] else _DistinctRows.apply(flat, self.index)

    def put(self, grid: Tensor, values: Tensor) -> Tensor:
        """`(batch, length, ...)` with the tokens' `(num_tokens, ...)` in their places."""
        if len(self) == self.batch * self.length:
            return values.to(grid.dtype).view(grid.shape)
        return grid.flatten(0, 1).index_copy(0, self.index, values.to(grid.dtype)).view(grid.shape)

    def by_sentence(self, values: Tensor) -> Tensor:
        """Arrange `(num_tokens, ...)` by sentence: -> `(batch, width, ...)`, zeros where empty."""
        shape = (self.batch, self.width, *values.shape[1:])
        if self._is_full:
            return values.view(shape)
        blank = values.new_zeros(self.batch * self.width, *values.shape[1:])
        return blank.index_copy(0, self.slot, values).view(shape)

    def from_sentences(self, values: Tensor) -> Tensor:
        """Undo `by_sentence`: `(batch, width, ...)` -> `(num_tokens, ...)`."""
        flat = values.flatten(0, 1)
        return flat if self._is_full else _DistinctRows.apply(flat, self.slot)

    @property
    def _is_full(self) -> bool:
        return len(self) == self.batch * self.width
