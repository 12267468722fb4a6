"""Arranges a flat list of tokens by sentence, as attention needs them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Arrangement:
    """Tokens grouped with the others that attend to the same keys.

    Attributes:
        num_rows: number of rows of keys and values in the arrangement, those of `present`.
        width: greatest number of tokens that attend to the same row.
        slot: position of each token in the flattened `(num_rows, width)` arrangement; None if the
            tokens fill it in order.
        present: which rows of keys and values these are, `(num_rows,)`; None: all, in order.
    """

    num_rows: int
    width: int
    slot: Tensor | None
    present: Tensor | None

    @classmethod
    def of(cls, rows: Tensor, num_rows: int, *, ascending: bool) -> Arrangement:
        """Arrange tokens by the row of keys that each attends to.

        Args:
            rows: `(num_tokens,)`.
            num_rows: total number of rows.
            ascending: whether `rows` is known to ascend, which saves sorting it.
        """
        if not rows.numel():
            return cls(num_rows, 0, None, None)
        counts = torch.bincount(rows, minlength=num_rows)
        width, num_present = torch.stack([counts.max(), counts.count_nonzero()]).tolist()
        present = None
        # Dropping rows copies the others, which does not pay off for a few.
        if 4 * num_present <= 3 * num_rows:
            present = counts.nonzero().squeeze(1)
            number = torch.empty_like(counts)
            number[present] = torch.arange(num_present, device=rows.device)
            rows, counts, num_rows = number[rows], counts[present], num_present
        if rows.numel() == num_rows * width and ascending:
            return cls(num_rows, width, None, present)
        place = torch.arange(rows.numel(), device=rows.device)
        if not ascending:
            place = torch.empty_like(place).index_copy_(0, rows.argsort(stable=True), place)
        first = counts.cumsum(0) - counts
        return cls(num_rows, width, rows * width + place - first[rows], present)

    def by_sentence(self, values: Tensor) -> Tensor:
        """Arrange `(num_tokens, ...)`: -> `(num_rows, width, ...)`, zeros where empty."""
        shape = (self.num_rows, self.width, *values.shape[1:])
        if self.slot is None:
            return values.view(shape)
        blank = values.new_zeros(self.num_rows * self.width, *values.shape[1:])
        return blank.index_copy(0, self.slot, values).view(shape)

    def from_sentences(self, values: Tensor) -> Tensor:
        """Undo `by_sentence`: `(num_rows, width, ...)` -> `(num_tokens, ...)`."""
        flat = values.flatten(0, 1)
        return flat if self.slot is None else flat.index_select(0, self.slot)
