"""Additive content attention."""

from __future__ import annotations

from torch import Tensor, nn

from sut_fairseq.modules.recurrent.attenders.interface import ContentAttender


class AdditiveAttender(ContentAttender):
    """score = u . tanh(W k_s + V q_t) (Bahdanau et al. 2015; LOC Eq. 3).

    LOC prints tanh of both, concatenated; the query would then be a term that all keys share,
    which softmax cancels. The sum is Bahdanau's.

    Args:
        dim: size of queries, keys and the hidden layer.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(dim, dim, bias=False)
        self.query = nn.Linear(dim, dim, bias=False)
        self.score = nn.Linear(dim, 1, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def scores(self, queries: Tensor, keys: Tensor, place: int) -> Tensor:
        pairs = keys.unsqueeze(1) + self.query(queries).unsqueeze(2)
        return self.score(pairs.tanh()).squeeze(-1)

    def num_products(self, width: int, num_keys: int, dim: int) -> int:
        return 0  # key and query are added
