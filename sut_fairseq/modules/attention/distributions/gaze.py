"""Cross-attention whose gaze moves from query to query (LOC 5, head by head)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.distributions.softmax import softmax
from sut_fairseq.modules.location import (
    Gaze,
    Mixing,
    Places,
    Weighter,
    look_along,
    show,
)
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact, exact_dtype


class GazeState:
    """What each head remembers of earlier queries, in one step of a decoder's depth loop.

    Set by the first queries of incremental decoding, and updated by later ones.

    Attributes:
        travelled: how far the average place of the last query's attention is from the gaze's
            outset, `(batch, num_heads)`, 0 before the first query; None: no query yet.
        hidden: state of the weighter, `(batch, num_heads, hidden_dim)`; likewise.
    """

    def __init__(self) -> None:
        self.travelled: Tensor | None = None
        self.hidden: Tensor | None = None

    def reorder(self, new_order: Tensor) -> None:
        """Select sentences (beams), `new_order` `(new_batch,)`."""
        if self.travelled is not None and self.hidden is not None:
            self.travelled = self.travelled.index_select(0, new_order)
            self.hidden = self.hidden.index_select(0, new_order)


class Sentences(NamedTuple):
    """Queries of target sentences, in order.

    Attributes:
        queries: `(rows, num_heads, width, head_dim)`.
        taken: True where there is a query, `(rows, width)`; None: everywhere.
        in_front: whether the queries come before all empty places.
        state: of the gaze before these queries; updated in place. None: not decoding
            incrementally.
        numbers: the sentences' rows in `state`, `(rows,)`; None: all, in order.
        batch: number of rows of `state`.
    """

    queries: Tensor
    taken: Tensor | None
    in_front: bool
    state: GazeState | None
    numbers: Tensor | None
    batch: int


class MovingGaze(nn.Module):
    """Attention weights that depend on where earlier queries of the same sentence have looked.

    Each head is an attender of its own, which reads the head's queries q; all heads share one
    weighter. Only queries that take a step of the depth loop count in it.

    Args:
        head_dim: size of a query.
        hidden_dim: size of the weighter.
        mixes: whether location is mixed with the softmax of scores (LOC 5.2), or used alone (5.1).

    Attributes:
        needs_positions, fuses: as in `Distribution`.
    """

    needs_positions: ClassVar[bool] = False
    fuses: ClassVar[bool] = False

    def __init__(self, head_dim: int, hidden_dim: int, *, mixes: bool) -> None:
        super().__init__()
        self.weighter = Weighter(head_dim, hidden_dim)
        self.location_share = nn.Linear(head_dim, 1) if mixes else None

    @property
    def reads_scores(self) -> bool:
        """Whether the weights depend on scores of the keys."""
        return self.location_share is not None

    def forward(
        self,
        sentences: Sentences,
        scores: Tensor | None,
        num_keys: int,
        padding_mask: Tensor | None,
        look: Look | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            sentences: the queries.
            scores: if they are read, `(rows, num_heads, width, 1, num_keys)`.
            num_keys: number of keys, padding included.
            padding_mask: True where the key is padding, `(rows, num_keys)`; None: no padding.
            look: receives the components of the weights, `(rows, num_heads, width, ...)` each.

        Returns:
            weights `(rows, num_heads, width, 1, num_keys)`, of the dtype of the queries.
        """
        queries, taken = sentences.queries, sentences.taken
        order = None
        if taken is not None and not sentences.in_front:
            order = (~taken).int().argsort(dim=1, stable=True)
            queries = _in_order(queries, order)
        places = _places(queries, num_keys, padding_mask)
        mean, hidden = self._before(sentences, places)
        gaze, omega = self.weighter(queries.flatten(0, 1), hidden.flatten(0, 1))
        gaze = Gaze(*(part.unflatten(0, mean.shape) for part in gaze))
        mixing = None
        if self.location_share is not None:
            assert scores is not None
            visible = None if padding_mask is None else ~padding_mask.unsqueeze(1)
            content = softmax(exact(scores), visible).squeeze(3)
            content = content if order is None else _in_order(content, order)
            share = exact(self.location_share(queries)).sigmoid().squeeze(-1)
            mixing = Mixing(content, share)
        looked = look_along(gaze, places, mean, mixing)
        if sentences.state is not None:
            means = torch.cat([mean.unsqueeze(2), looked.mean], dim=2)
            states = torch.cat([hidden.unsqueeze(2), omega.unflatten(0, mean.shape)], dim=2)
            _remember(sentences, sentences.state, means - places.outset.unsqueeze(2), states)
        back = None if order is None else order.argsort(dim=1)

        def in_place(values: Tensor) -> Tensor:
            return values if back is None else _in_order(values, back)

        if look is not None:
            show(lambda name, values: look(name, in_place(values)), gaze, places, looked, mixing)
        return in_place(looked.weights).unsqueeze(3).to(sentences.queries.dtype)

    def _before(self, sentences: Sentences, places: Places) -> tuple[Tensor, Tensor]:
        """Mean `(rows, num_heads)` and state of the weighter before the first of the queries."""
        queries, state, numbers = sentences.queries, sentences.state, sentences.numbers
        rows, num_heads = queries.shape[:2]
        outset = places.outset.expand(rows, num_heads)
        if state is None or state.travelled is None or state.hidden is None:
            return outset, queries.new_zeros(rows, num_heads, self.weighter.gru.hidden_size)
        if numbers is None:
            return outset + state.travelled, state.hidden
        return outset + state.travelled[numbers], state.hidden[numbers]


def _remember(sentences: Sentences, state: GazeState, travelled: Tensor, hidden: Tensor) -> None:
    """Store the state after the last query of each sentence.

    Args:
        sentences: the queries.
        state: the state to update.
        travelled: before the first query and after each of them, `(rows, num_heads, 1 + width)`.
        hidden: likewise, `(rows, num_heads, 1 + width, hidden_dim)`.
    """
    taken, numbers = sentences.taken, sentences.numbers
    if taken is None:
        travelled, hidden = travelled[..., -1], hidden[..., -1, :].contiguous()  # cuDNN needs it
    else:
        last = taken.sum(dim=1)
        rows = torch.arange(len(last), device=last.device)
        travelled, hidden = travelled[rows, :, last], hidden[rows, :, last]
    if numbers is not None:
        if state.travelled is None or state.hidden is None:
            state.travelled = travelled.new_zeros(sentences.batch, *travelled.shape[1:])
            state.hidden = hidden.new_zeros(sentences.batch, *hidden.shape[1:])
        travelled = state.travelled.index_copy(0, numbers, travelled)
        hidden = state.hidden.index_copy(0, numbers, hidden)
    state.travelled, state.hidden = travelled, hidden


def _in_order(values: Tensor, order: Tensor) -> Tensor:
    """`(rows, num_heads, width, ...)` with the queries in another order, `(rows, width)`."""
    rows = torch.arange(len(order), device=order.device).unsqueeze(1)
    return values.transpose(1, 2)[rows, order].transpose(1, 2)


def _places(like: Tensor, num_keys: int, padding_mask: Tensor | None) -> Places:
    """Places of the words of each source sentence, wherever its padding is, for all heads."""
    dtype = exact_dtype(like.dtype)
    if padding_mask is None:
        lengths = torch.full((1,), num_keys, dtype=dtype, device=like.device)
        numbers = torch.arange(num_keys, device=like.device).unsqueeze(0)
    else:
        lengths = (~padding_mask).sum(dim=1).to(dtype)
        numbers = (~padding_mask).cumsum(dim=1) - 1
    return Places(*(part.unsqueeze(1) for part in Places.of(lengths, numbers, padding_mask)))
