"""Interface of the attention kinds, and the memory that they attend to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.distributions.gaze import GazeState
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import RouterCalls


class Memory(NamedTuple):
    """What is attended to; keys and values each have their own number of heads and size.

    Attributes:
        keys: `(batch, num_heads, num_keys, head_dim)`.
        values: `(batch, num_value_heads, num_keys, value_dim)`.
        padding_mask: True where the key is padding, `(batch, num_keys)`; None: no padding.
        query_offset: position, in self-attention among the keys, of the first column of the token
            grid, whether its tokens are active or not (greater than 0 when earlier positions come
            from a cache).
        rows: row of keys and values that each sentence attends to, `(num_sentences,)`: the
            hypotheses of a beam share those of their source; None: each sentence has its own.
        gaze: where earlier queries have looked, in incremental cross-attention; None: not needed.
    """

    keys: Tensor
    values: Tensor
    padding_mask: Tensor | None = None
    query_offset: int = 0
    rows: Tensor | None = None
    gaze: GazeState | None = None

    def for_each_sentence(self) -> Memory:
        """The same without `rows`: hypotheses of one source get copies of its keys and values."""
        return self if self.rows is None else self.select(self.rows)._replace(rows=None)

    def select(self, chosen: Tensor) -> Memory:
        """These rows of keys, values and padding, `(num_chosen,)`; `rows` is not renumbered."""
        mask = self.padding_mask
        return self._replace(
            keys=self.keys.index_select(0, chosen),
            values=self.values.index_select(0, chosen),
            padding_mask=None if mask is None else mask.index_select(0, chosen),
        )


class Attention(nn.Module, ABC):
    """Base of the attention kinds.

    `keys_values` is separate from `forward` so that the keys and values of halted tokens, of an
    encoder, and of earlier positions are computed once. A kind composes a search, which scores keys
    and divides by sqrt(head_dim), and a retrieval (`core`, `retrieve`).

    Attributes:
        num_heads: how many sets of weights each token has (for each of its experts).
    """

    num_heads: int

    @abstractmethod
    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Project `(num_tokens, source_dim)`.

        Returns:
            keys `(num_tokens, num_heads, head_dim)`, not yet scaled, and values
            `(num_tokens, num_value_heads, value_dim)`.
        """

    @abstractmethod
    def forward(
        self,
        states: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, RouterCalls | None]:
        """Attend.

        Args:
            states: states of the active tokens, `(num_tokens, embed_dim)`.
            tokens: where these tokens stand in their sentences.
            memory: what they attend to.
            call_weights: weight of each token in routing statistics, `(num_tokens,)`; None: 1.
            look: receives weights and routing, see `Observer.saw`.

        Returns:
            `(num_tokens, embed_dim)`, and the router's calls if the kind is routed.
        """


def visible_keys(positions: Tensor | None, memory: Memory) -> Tensor | None:
    """Which keys each query may see, `(num_rows or 1, width or 1, num_keys)`; None: all.

    Empty slots of an arrangement have some position or other; they are discarded.

    Args:
        positions: position of each query among the keys, `(num_rows or 1, width)`, if later keys
            are hidden from it; None: they are not.
        memory: what is attended to, with as many rows.
    """
    visible = None if memory.padding_mask is None else ~memory.padding_mask.unsqueeze(1)
    if positions is not None:
        key_positions = torch.arange(memory.keys.shape[2], device=memory.keys.device)
        not_later = key_positions <= positions.unsqueeze(-1)
        visible = not_later if visible is None else visible & not_later
    return visible
