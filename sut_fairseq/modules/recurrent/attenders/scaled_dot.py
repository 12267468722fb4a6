"""Scaled dot product attention."""

from __future__ import annotations

from torch import Tensor

from sut_fairseq.modules.recurrent.attenders.interface import ContentAttender


class ScaledDotAttender(ContentAttender):
    """score = k_s . q_t / sqrt(dim) (Vaswani et al. 2017; LOC Eq. 3)."""

    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        return queries @ keys.transpose(1, 2) * queries.shape[-1] ** -0.5
