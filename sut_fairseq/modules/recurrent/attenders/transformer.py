"""The Transformer's attention: content and absolute positions in one score."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.positions import sinusoids
from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.recurrent.attenders.interface import ContentAttender


class TransformerAttender(ContentAttender):
    """score = (k_s + p_s) . (q_t + p_t) / sqrt(dim), with sinusoidal p (LOC Eq. 4)."""

    def keys(self, states: Tensor) -> Tensor:
        return states + _positions(states, 0)

    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        queries = queries + _positions(queries, place)
        return queries @ keys.transpose(1, 2) * queries.shape[-1] ** -0.5


def _positions(states: Tensor, first: int) -> Tensor:
    """Sinusoids for `(batch, length, dim)` that begin at position `first`: `(length, dim)`."""
    _, length, dim = states.shape
    places = torch.arange(first, first + length, device=states.device)
    return sinusoids(places, dim, exact_dtype(states.dtype)).to(states.dtype)
