"""Transformer-XL's attention: content and relative positions in one score."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.positions import sinusoids
from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.recurrent.attenders.interface import ContentAttender


class TransformerXLAttender(ContentAttender):
    """score = (W k_s + V p_{s-t}) . (U q_t + b) / sqrt(dim), with sinusoidal p (LOC Eq. 4).

    Args:
        dim: size of queries, keys and sinusoids.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(dim, dim, bias=False)
        self.position = nn.Linear(dim, dim, bias=False)
        self.query = nn.Linear(dim, dim)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        width, num_keys, dim = queries.shape[1], keys.shape[1], keys.shape[2]
        queries = self.query(queries)
        # Offsets s - t from key 0 and the last query to the last key and the first query.
        offsets = torch.arange(1 - place - width, num_keys - place, device=keys.device)
        table = sinusoids(offsets, dim, exact_dtype(keys.dtype)).to(keys.dtype)
        by_offset = queries @ self.position(table).t()
        numbers = torch.arange(num_keys, device=keys.device)
        first = torch.arange(width - 1, -1, -1, device=keys.device)
        places = (first.unsqueeze(1) + numbers).expand(len(queries), -1, -1)
        scores = queries @ keys.transpose(1, 2) + by_offset.gather(2, places)
        return scores * dim**-0.5

    def num_products(self, width: int, num_keys: int, dim: int) -> int:
        num_offsets = num_keys + width - 1
        return width * (num_keys + num_offsets) * dim
