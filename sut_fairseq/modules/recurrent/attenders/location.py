"""Location attention: where to look depends on positions alone."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.location import Mixing, Places, Weighter, look_along, show
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.recurrent.attenders.interface import Attender, Source, State


class LocationAttender(Attender):
    """A Gaussian over relative positions whose mean moves from query to query (LOC 5.1).

    Args:
        dim: size of queries.
        hidden_dim: size of the weighter.
    """

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.weighter = Weighter(dim, hidden_dim)

    def start(self, source: Source) -> State:
        """The state before the first query, when no word has been looked at."""
        states = source.states
        hidden = states.new_zeros(len(states), self.weighter.gru.hidden_size)
        return State(mean=_places(source).outset, hidden=hidden)

    def forward(
        self, queries: Tensor, source: Source, state: State, look: Look | None = None
    ) -> tuple[Tensor, State]:
        return self.attend(queries, source, state, None, look)

    def attend(
        self,
        queries: Tensor,
        source: Source,
        state: State,
        mixing: Mixing | None,
        look: Look | None = None,
    ) -> tuple[Tensor, State]:
        """As `forward`, mixed with content attention if it is given."""
        assert state.mean is not None and state.hidden is not None, "`start` makes the first state"
        gaze, hidden = self.weighter(queries, state.hidden)
        places = _places(source)
        looked = look_along(gaze, places, state.mean, mixing)
        if look is not None:
            show(look, gaze, places, looked, mixing)
        place = state.place + queries.shape[1]
        after = state._replace(place=place, mean=looked.mean[:, -1], hidden=hidden[:, -1])
        return looked.weights, after

    def num_products(self, width: int, num_keys: int, dim: int) -> int:
        return 0  # it reads no keys


def _places(source: Source) -> Places:
    numbers = torch.arange(source.states.shape[1], device=source.states.device)
    lengths = source.lengths.to(exact_dtype(source.states.dtype))
    return Places.of(lengths, numbers, source.padding_mask)
