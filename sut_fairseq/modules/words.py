"""The words of padded sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Words(NamedTuple):
    """The words alone, shifted to the left.

    Attributes:
        tokens: `(batch, longest)`; in shorter sentences, tokens that are not words follow.
        lengths: number of words, `(batch,)`.
        columns: column of each of `tokens` in the original batch.
    """

    tokens: Tensor
    lengths: Tensor
    columns: Tensor

    @classmethod
    def of(cls, tokens: Tensor, unread: Sequence[int]) -> Words:
        """Take the words out of a batch.

        Args:
            tokens: padded on either side, `(batch, length)`.
            unread: the tokens that are not words, padding included.
        """
        is_unread = tokens.eq(unread[0])
        for token in unread[1:]:
            is_unread = is_unread | tokens.eq(token)
        lengths = (~is_unread).sum(dim=1)
        longest = int(lengths.max())
        columns = is_unread.int().argsort(dim=1, stable=True)[:, :longest]
        return cls(tokens.gather(1, columns), lengths, columns)
