"""A choice between absolute and relative positions for each query (NDR Eq. 16-17)."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.attention.positions.by_key import by_key
from sut_fairseq.modules.attention.positions.interface import Pairing, scaled_products
from sut_fairseq.modules.attention.positions.transformer_xl import TransformerXLPositions
from sut_fairseq.modules.initialization import xavier_linear


class AbsoluteRelativePositions(TransformerXLPositions):
    """A choice between absolute and relative positions for each query and head (NDR Eq. 16-17).

    As `TransformerXLPositions`, with r_i p_{i-j} + (1 - r_i) p_j in place of p_{i-j}, where
    r_i = sigmoid(w_ar . h_i + b_ar) and j counts from 0 in each sentence. Each head has its own
    r, as in the authors' code; the paper prints one for all heads.
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

    def position_scores(self, queries: Tensor, pairing: Pairing) -> Tensor:
        assert pairing.of_states is not None
        share = pairing.of_states.unsqueeze(3).to(queries.dtype)
        absolute, relative = (
            self.absolute_scores(queries, pairing),
            self.relative_scores(queries, pairing),
        )
        return torch.lerp(absolute, relative, share)

    def absolute_scores(self, queries: Tensor, pairing: Pairing) -> Tensor:
        """(q_i + v) . W p_j / sqrt(head_dim), by key."""
        num_keys, padding_mask = pairing.keys.shape[2], pairing.padding_mask
        places = torch.arange(num_keys, device=queries.device)
        by_place = scaled_products(queries, self.position_keys(places, queries))
        if padding_mask is None:
            return by_place
        # Sentences count from their first token, wherever padding puts it.
        first = padding_mask.int().argmin(dim=1, keepdim=True).expand(-1, queries.shape[2])
        return by_key(by_place, first, num_keys, may_clip=False)

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        return super().num_position_products(num_keys, furthest) + num_keys
