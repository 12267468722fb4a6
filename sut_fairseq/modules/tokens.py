"""The tokens of a padded batch that are still being computed, in two layouts.

Operations on single tokens (projections, experts, norms, halting) take a flat list of tokens,
`(num_tokens, ...)`. `CompactTokens` list active tokens only: padding and halted tokens cost
nothing, but the number of tokens must be read from the device. `MaskedTokens` list every token of
the batch and mark the active ones: shapes never change, so nothing waits for the device, and with
grouped experts `torch.compile` sees one graph (the loop over experts breaks it, as does the GRU of
a moving gaze); for inactive tokens only the experts' work is saved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from sut_fairseq.modules.arrangement import Arrangement

LAYOUTS = ("auto", "compact", "masked")

_Own = TypeVar("_Own", bound="ActiveTokens")


class ActiveTokens(ABC):
    """A list of tokens of a `(batch, length)` grid, in row-major order.

    Attributes:
        batch, length: size of the grid.
        active: which tokens of the list are active, `(num_tokens,)`; None: all.
    """

    batch: int
    length: int
    active: Tensor | None

    @staticmethod
    def from_mask(active: Tensor, layout: str = "compact") -> ActiveTokens:
        """Tokens where `active` `(batch, length)` is True, in the layout "compact" or "masked"."""
        batch, length = active.shape
        if layout == "masked":
            return MaskedTokens(batch, length, active.flatten())
        return CompactTokens(batch, length, active.flatten().nonzero().squeeze(1))

    @abstractmethod
    def __len__(self) -> int:
        """Number of tokens in the list."""

    @property
    @abstractmethod
    def column(self) -> Tensor:
        """Column of each token in the grid, `(num_tokens,)`.

        It is the token's position in its sentence unless padding or a cache's positions precede it.
        """

    @property
    @abstractmethod
    def fills_grid(self) -> bool:
        """Whether the list holds every token of the grid."""

    @property
    @abstractmethod
    def in_front(self) -> bool:
        """Whether the tokens of each sentence stand in the first columns, without gaps."""

    @abstractmethod
    def count(self) -> int | Tensor:
        """Number of active tokens."""

    @abstractmethod
    def weights(self, weights: Tensor | None, like: Tensor) -> Tensor | None:
        """The weights `(num_tokens,)`, but 0 for inactive tokens.

        None means 1 for all, also as the result; weights made here have the dtype of `like`.
        """

    @abstractmethod
    def keep(self: _Own, running: Tensor) -> tuple[_Own, Tensor | None]:
        """Keep the tokens for which `running` `(num_tokens,)` is True.

        Returns:
            these tokens, and their places in the old list; None: the list stays the same.
        """

    @abstractmethod
    def in_sentences_of(self: _Own, others: _Own) -> tuple[_Own, Tensor | None]:
        """Those tokens whose sentence has a token in `others`, and their places as in `keep`."""

    @abstractmethod
    def any_in_sentence(self, chosen: Tensor) -> Tensor:
        """For each token, whether any active one of its sentence is `chosen`; `(num_tokens,)`."""

    @abstractmethod
    def take(self, grid: Tensor) -> Tensor:
        """Read the tokens from `(batch, length, ...)`: -> `(num_tokens, ...)`."""

    @abstractmethod
    def put(self, grid: Tensor, values: Tensor, *, overwrite: bool = False) -> Tensor:
        """Write the active tokens' `(num_tokens, ...)` to their places in `(batch, length, ...)`.

        With `overwrite` the grid itself may be written to.
        """

    @abstractmethod
    def arrange(self, memory_rows: Tensor | None, num_memory_rows: int) -> Arrangement:
        """Arrange the tokens by the row of keys and values that they attend to.

        Args:
            memory_rows: row of each sentence, `(batch,)`; None: sentence i attends to row i.
            num_memory_rows: number of rows.
        """


@dataclass(frozen=True)
class CompactTokens(ActiveTokens):
    """The active tokens alone; `index` holds their places in the flattened grid, ascending."""

    batch: int
    length: int
    index: Tensor
    active = None

    def __len__(self) -> int:
        return self.index.numel()

    @cached_property
    def row(self) -> Tensor:
        """Sentence of each token, `(num_tokens,)`."""
        return self.index.div(self.length, rounding_mode="floor")

    @cached_property
    def column(self) -> Tensor:
        return self.index % self.length

    def count(self) -> int:
        return len(self)

    def weights(self, weights: Tensor | None, like: Tensor) -> Tensor | None:
        return weights

    def keep(self, running: Tensor) -> tuple[CompactTokens, Tensor | None]:
        if running.all():
            return self, None
        places = running.nonzero().squeeze(1)
        return CompactTokens(self.batch, self.length, self.index[places]), places

    def in_sentences_of(self, others: CompactTokens) -> tuple[CompactTokens, Tensor | None]:
        if self is others:
            return self, None
        return self.keep(self._in_rows(others.row))

    def any_in_sentence(self, chosen: Tensor) -> Tensor:
        return self._in_rows(self.row[chosen])

    def _in_rows(self, rows: Tensor) -> Tensor:
        """Which tokens belong to these sentences, `(num_tokens,)`, bool."""
        present = torch.zeros(self.batch, dtype=torch.bool, device=self.index.device)
        present[rows] = True
        return present[self.row]

    def take(self, grid: Tensor) -> Tensor:
        flat = grid.flatten(0, 1)
        return flat if self.fills_grid else flat.index_select(0, self.index)

    def put(self, grid: Tensor, values: Tensor, *, overwrite: bool = False) -> Tensor:
        values = values.to(grid.dtype)
        if self.fills_grid:
            return values.view(grid.shape)
        if overwrite:
            grid.view(self.batch * self.length, *grid.shape[2:]).index_copy_(0, self.index, values)
            return grid
        return grid.flatten(0, 1).index_copy(0, self.index, values).view(grid.shape)

    def arrange(self, memory_rows: Tensor | None, num_memory_rows: int) -> Arrangement:
        if memory_rows is None:
            return self._by_own_row
        # All steps of a depth loop ask for the same rows, with these tokens until one halts.
        rows, arrangement = self._by_other_rows
        if rows is not memory_rows:
            arrangement = Arrangement.of(memory_rows[self.row], num_memory_rows, ascending=False)
            self._by_other_rows[:] = [memory_rows, arrangement]
        return arrangement

    @cached_property
    def _by_other_rows(self) -> list[Any]:
        """The rows that were asked for last, and their arrangement."""
        return [None, None]

    @cached_property
    def _by_own_row(self) -> Arrangement:
        if self.fills_grid:
            return Arrangement(self.batch, self.length, None, None)
        return Arrangement.of(self.row, self.batch, ascending=True)

    @property
    def fills_grid(self) -> bool:
        return len(self) == self.batch * self.length

    @cached_property
    def in_front(self) -> bool:
        follows = self.index.diff(prepend=self.index.new_full((1,), -1)) == 1
        return self.fills_grid or bool((follows | (self.column == 0)).all())


@dataclass(frozen=True)
class MaskedTokens(ActiveTokens):
    """All tokens of the grid, of which some are active."""

    batch: int
    length: int
    active: Tensor
    fills_grid = True
    in_front = True

    def __len__(self) -> int:
        return self.batch * self.length

    @property
    def column(self) -> Tensor:
        return torch.arange(len(self), device=self.active.device) % self.length

    def count(self) -> Tensor:
        return self.active.sum()

    def weights(self, weights: Tensor | None, like: Tensor) -> Tensor:
        return self.active.to(like.dtype) if weights is None else weights * self.active

    def keep(self, running: Tensor) -> tuple[MaskedTokens, None]:
        return MaskedTokens(self.batch, self.length, self.active & running), None

    def in_sentences_of(self, others: MaskedTokens) -> tuple[MaskedTokens, None]:
        return self, None

    def any_in_sentence(self, chosen: Tensor) -> Tensor:
        by_sentence = (chosen & self.active).view(self.batch, self.length)
        return by_sentence.any(dim=1, keepdim=True).expand_as(by_sentence).flatten()

    def take(self, grid: Tensor) -> Tensor:
        return grid.flatten(0, 1)

    def put(self, grid: Tensor, values: Tensor, *, overwrite: bool = False) -> Tensor:
        chosen = self.active.view(self.batch, self.length, *[1] * (grid.dim() - 2))
        return torch.where(chosen, values.to(grid.dtype).view(grid.shape), grid)

    def arrange(self, memory_rows: Tensor | None, num_memory_rows: int) -> Arrangement:
        return Arrangement(self.batch, self.length, None, memory_rows)
