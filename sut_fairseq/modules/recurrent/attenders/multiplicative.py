"""Multiplicative content attention."""

from __future__ import annotations

from torch import Tensor, nn

from sut_fairseq.modules.recurrent.attenders.interface import ContentAttender


class MultiplicativeAttender(ContentAttender):
    """score = k_s . W q_t (Luong et al. 2015; LOC Eq. 3).

    Args:
        dim: size of queries and keys.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, dim, bias=False)

    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        return self.query(queries) @ keys.transpose(1, 2)
