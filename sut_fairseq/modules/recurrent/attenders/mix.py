"""Content and location attention, mixed."""

from __future__ import annotations

from torch import Tensor, nn

from sut_fairseq.modules.location import Mixing
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact
from sut_fairseq.modules.recurrent.attenders.interface import (
    Attender,
    ContentAttender,
    Source,
    State,
)
from sut_fairseq.modules.recurrent.attenders.location import LocationAttender


class MixAttender(Attender):
    """alpha = % lambda + (1 - %) gamma, % = sigmoid(w . q) (LOC 5.2).

    lambda moves on from the average position of the mixed attention alpha.

    Args:
        dim: size of queries.
        content: gives gamma.
        location: gives lambda.
    """

    def __init__(self, dim: int, content: ContentAttender, location: LocationAttender) -> None:
        super().__init__()
        self.content = content
        self.location = location
        self.location_share = nn.Linear(dim, 1)

    def start(self, source: Source) -> State:
        return self.location.start(source)._replace(keys=self.content.keys(source.states))

    def forward(
        self, queries: Tensor, source: Source, state: State, look: Look | None = None
    ) -> tuple[Tensor, State]:
        content, _ = self.content(queries, source, state)
        share = exact(self.location_share(queries)).sigmoid().squeeze(-1)
        return self.location.attend(queries, source, state, Mixing(content, share), look)

    def num_products(self, width: int, num_keys: int, dim: int) -> int:
        return self.content.num_products(width, num_keys, dim)
