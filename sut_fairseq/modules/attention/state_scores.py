"""Kinds of scores in which the queries' states say how positions count (NDR Eq. 9-10, 16-17)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.interface import Pairing
from sut_fairseq.modules.attention.position_scores import PositionScores, by_key, content_scores
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.positions import sinusoids


class Direction(PositionScores):
    """Content and direction, for geometric attention (NDR Eq. 9-10).

    score(i, j) = alpha (q_i + b) . k_j + beta D_ij + gamma, where D_ij is a linear function of
    state h_i for each head: one for keys at or after i, another for keys before. alpha starts at
    1 / sqrt(head_dim), beta at 1, gamma at 0.

    Args:
        embed_dim: size of a query's state.
        num_heads, head_dim: heads and their size.
        dropout: dropout of the content queries.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, head_dim: int, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.direction = xavier_linear(embed_dim, 2 * num_heads)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.alpha = nn.Parameter(torch.tensor(head_dim**-0.5))
        self.beta = nn.Parameter(torch.tensor(1.0))
        self.gamma = nn.Parameter(torch.tensor(0.0))
        self.dropout = Dropout(dropout)

    def of_states(self, states: Tensor) -> Tensor:
        """beta D + gamma at or after and before the query, `(num_tokens, num_heads, 2)`."""
        return (self.beta * self.direction(states) + self.gamma).unflatten(-1, (self.num_heads, 2))

    def forward(self, pairing: Pairing) -> Tensor:
        queries, keys = pairing.queries, pairing.keys
        assert pairing.of_states is not None
        after, before = pairing.of_states.unsqueeze(3).to(queries.dtype).split(1, dim=-1)
        # alpha includes the 1 / sqrt(head_dim) that the keys have been given already.
        content = self.dropout(queries + _of_heads(self.content_bias, queries))
        content = content * (self.alpha * self.head_dim**0.5).to(queries.dtype)
        # One more product gives every key the score of keys before; the others' then differ.
        top_k = queries.shape[3]
        queries = torch.cat([content, before.expand(*queries.shape[:4], 1)], dim=-1)
        keys = torch.cat([keys.to(queries.dtype), torch.ones_like(keys[..., :1])], dim=-1)
        places = torch.arange(keys.shape[2], device=keys.device)
        is_after = (places >= pairing.positions.unsqueeze(-1)).unsqueeze(1).to(queries.dtype)
        difference = (after - before).expand(*queries.shape[:4], 1).flatten(2, 3)
        # In place on the product itself: on a view of it, autograd would copy the gradient.
        scores = queries.flatten(2, 3) @ keys.transpose(2, 3)
        scores = scores.addcmul_(difference, is_after.repeat_interleave(top_k, dim=2))
        return scores.view(*queries.shape[:4], -1)


class TransformerXLPositions(PositionScores):
    """Relative positions of Transformer-XL (Dai et al. 2019).

    score(i, j) = ((q_i + u) . k_j + (q_i + v) . W p_{i-j}) / sqrt(head_dim), with sinusoidal p,
    one projection W, and biases u and v per head, initialised to zero.

    Args:
        embed_dim: size of a query's state and of a sinusoid.
        num_heads, head_dim: heads and their size.
        dropout: dropout of q + u and of q + v.
        causal: whether only earlier keys are visible; what later ones would score is undefined.
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
        content = self.dropout(queries + _of_heads(self.content_bias, queries))
        position = self.dropout(queries + _of_heads(self.position_bias, queries))
        return content_scores(content, keys) + self._position_scores(position, pairing)

    def _position_scores(self, queries: Tensor, pairing: Pairing) -> Tensor:
        return self._relative(queries, pairing)

    def _relative(self, queries: Tensor, pairing: Pairing) -> Tensor:
        num_keys, lowest = pairing.keys.shape[2], -pairing.furthest
        offsets = torch.arange(lowest, 1 if self.causal else num_keys, device=queries.device)
        by_offset = content_scores(queries, self._position_keys(-offsets, queries))
        return by_key(by_offset, pairing.positions + lowest, num_keys, may_clip=False)

    def _position_keys(self, places: Tensor, like: Tensor) -> Tensor:
        """W p / sqrt(head_dim) for places `(n,)`: -> `(1, num_heads, n, head_dim)`."""
        dtype = self.position_key.weight.dtype
        # Angles in half precision would tell far positions apart no longer.
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        table = sinusoids(places, self.embed_dim, exact).to(dtype)
        keys = self.position_key(table).unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
        return (keys * keys.shape[-1] ** -0.5).to(like.dtype).unsqueeze(0)

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        return furthest + (1 if self.causal else num_keys)


class AbsoluteRelativePositions(TransformerXLPositions):
    """A choice between absolute and relative positions for each query and head (NDR Eq. 16-17).

    As `TransformerXLPositions`, with r_i p_{i-j} + (1 - r_i) p_j in the place of p_{i-j}, where
    r_i = sigmoid(w_ar . h_i + b_ar) and sentences count from 0.
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
        super().__init__(embed_dim, num_heads, head_dim, dropout=dropout, causal=causal)
        self.relative = xavier_linear(embed_dim, num_heads)

    def of_states(self, states: Tensor) -> Tensor:
        """r, `(num_tokens, num_heads, 1)`."""
        return self.relative(states).sigmoid().unsqueeze(-1)

    def _position_scores(self, queries: Tensor, pairing: Pairing) -> Tensor:
        assert pairing.of_states is not None
        share = pairing.of_states.unsqueeze(3).to(queries.dtype)
        absolute, relative = self._absolute(queries, pairing), self._relative(queries, pairing)
        return torch.lerp(absolute, relative, share)

    def _absolute(self, queries: Tensor, pairing: Pairing) -> Tensor:
        num_keys, padding_mask = pairing.keys.shape[2], pairing.padding_mask
        places = torch.arange(num_keys, device=queries.device)
        by_place = content_scores(queries, self._position_keys(places, queries))
        if padding_mask is None:
            return by_place
        # Sentences count from their first token, wherever padding puts it.
        first = padding_mask.int().argmin(dim=1, keepdim=True).expand(-1, queries.shape[2])
        return by_key(by_place, first, num_keys, may_clip=False)

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        return super().num_position_products(num_keys, furthest) + num_keys


def _of_heads(bias: Tensor, queries: Tensor) -> Tensor:
    """A bias `(num_heads, head_dim)` for `(batch, num_heads, width, top_k, head_dim)` queries."""
    return bias[:, None, None].to(queries.dtype)
