"""Interface of the attenders (LOC section 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact, exact_softmax


@dataclass(frozen=True)
class Source:
    """What is attended to; keys and values are the same, K = V = E.

    Attributes:
        states: the encoder's, padded on the right, `(batch, num_keys, dim)`.
        lengths: number of words of each sentence, at least 1, `(batch,)`.
    """

    states: Tensor
    lengths: Tensor

    @cached_property
    def padding_mask(self) -> Tensor:
        """True where the key is padding, `(batch, num_keys)`."""
        numbers = torch.arange(self.states.shape[1], device=self.states.device)
        return numbers >= self.lengths.unsqueeze(1)


class State(NamedTuple):
    """What an attender remembers of the source and earlier queries; passed in and returned.

    Attributes:
        place: number of earlier queries.
        mean: average position of the last one's attention, `(batch,)`; if the gaze moves.
        hidden: state of the weighter, `(batch, hidden_dim)`; likewise.
        keys: the projected source, `(batch, num_keys, dim)`; None: it is not projected.
    """

    place: int = 0
    mean: Tensor | None = None
    hidden: Tensor | None = None
    keys: Tensor | None = None

    def select(self, rows: Tensor) -> State:
        """The state of these sentences, `(new_batch,)`."""
        selected = (None if x is None else x.index_select(0, rows) for x in self[1:])
        return State(self.place, *selected)


class Attender(nn.Module, ABC):
    """Base of the attenders: queries and source to attention weights.

    The module keeps nothing: all that a query needs to know of earlier ones is in the state.
    """

    def start(self, source: Source) -> State:
        """The state before the first query."""
        return State()

    @abstractmethod
    def forward(
        self, queries: Tensor, source: Source, state: State, look: Look | None = None
    ) -> tuple[Tensor, State]:
        """Attend.

        Args:
            queries: consecutive queries of each target sentence, `(batch, width, dim)`.
            source: what they attend to.
            state: the state after the earlier queries.
            look: receives the components of the weights, `(batch, width, ...)` each.

        Returns:
            weights `(batch, width, num_keys)`, float32 or better: each row sums to 1, and padding
            has 0; and the state after the last query.
        """

    @abstractmethod
    def num_products(self, width: int, num_keys: int, dim: int) -> int:
        """Multiplications of queries with keys, besides those of linear layers, in one sentence."""


class ContentAttender(Attender):
    """Base of the attenders with gamma_t = softmax over s of score(k_s, q_t) (LOC Eq. 2)."""

    def start(self, source: Source) -> State:
        return State(keys=self.keys(source.states))

    def keys(self, states: Tensor) -> Tensor | None:
        """Project the source once for all queries, `(batch, num_keys, dim)`; None: no need."""
        return None

    def forward(
        self, queries: Tensor, source: Source, state: State, look: Look | None = None
    ) -> tuple[Tensor, State]:
        keys = source.states if state.keys is None else state.keys
        scores = exact(self.scores(queries, keys, state.place))
        scores = scores.masked_fill(source.padding_mask.unsqueeze(1), -torch.inf)
        return exact_softmax(scores), state._replace(place=state.place + queries.shape[1])

    @abstractmethod
    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        """Score all pairs.

        Args:
            queries: `(batch, width, dim)`.
            keys: the result of `keys` for the source, or its states; `(batch, num_keys, dim)`.
            place: number of the first query in its sentence, from 0.

        Returns:
            `(batch, width, num_keys)`.
        """

    def num_products(self, width: int, num_keys: int, dim: int) -> int:
        return width * num_keys * dim
