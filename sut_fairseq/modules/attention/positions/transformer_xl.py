"""Relative positions of Transformer-XL."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.positions.by_key import by_key
from sut_fairseq.modules.attention.positions.interface import (
    Pairing,
    Scores,
    of_heads,
    scaled_products,
)
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.positions import sinusoids
from sut_fairseq.modules.precision import exact_dtype


class TransformerXLPositions(Scores):
    """Relative positions of Transformer-XL (Dai et al. 2019).

    score(i, j) = ((q_i + u) . k_j + (q_i + v) . W p_{i-j}) / sqrt(head_dim), with sinusoidal p,
    one projection W, and biases u and v per head, initialised to zero.

    Args:
        embed_dim: size of a query's state and of a sinusoid.
        num_heads, head_dim: heads and their size.
        dropout: dropout of q + u and of q + v.
        causal: whether only earlier keys are visible; the scores of later ones are undefined.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        dropout: float = 0.0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.causal = causal
        self.position_key = xavier_linear(embed_dim, num_heads * head_dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.position_bias = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.dropout = Dropout(dropout)

    def forward(self, pairing: Pairing) -> Tensor:
        queries, keys = pairing.queries, pairing.keys
        content = self.dropout(queries + of_heads(self.content_bias, queries))
        position = self.dropout(queries + of_heads(self.position_bias, queries))
        return scaled_products(content, keys, plus=self.position_scores(position, pairing))

    def position_scores(self, queries: Tensor, pairing: Pairing) -> Tensor:
        """What positions add for q + v, `(rows, num_heads, width, top_k, num_keys)`."""
        return self.relative_scores(queries, pairing)

    def relative_scores(self, queries: Tensor, pairing: Pairing) -> Tensor:
        """(q_i + v) . W p_{i-j} / sqrt(head_dim), by key."""
        num_keys, lowest = pairing.keys.shape[2], -pairing.furthest
        assert pairing.positions is not None
        offsets = torch.arange(lowest, 1 if self.causal else num_keys, device=queries.device)
        by_offset = scaled_products(queries, self.position_keys(-offsets, queries))
        return by_key(by_offset, pairing.positions + lowest, num_keys, may_clip=False)

    def position_keys(self, places: Tensor, like: Tensor) -> Tensor:
        """W p for places `(n,)`: -> `(1, num_heads, n, head_dim)`."""
        dtype = self.position_key.weight.dtype
        # In half precision, angles would no longer tell far positions apart.
        table = sinusoids(places, self.embed_dim, exact_dtype(dtype)).to(dtype)
        keys = self.position_key(table).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
        return keys.to(like.dtype).unsqueeze(0)

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        return furthest + (1 if self.causal else num_keys)
