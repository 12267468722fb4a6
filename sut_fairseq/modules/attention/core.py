"""The part that all attention kinds share: scores, distribution, weighted sum."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.distributions import softmax
from sut_fairseq.modules.attention.interface import Memory, visible_keys
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.tokens import ActiveTokens


class AttentionCore(nn.Module):
    """context = distribution(q . k / sqrt(head_dim) + position scores) v.

    Each token may bring several groups of heads (the experts it chose); all groups share the keys
    and values, which are not repeated in memory: groups fold into the query axis.

    Args:
        positions: position scores (`position_scores`), or None.
        distribution: scores and visibility to weights (`distributions`).
        dropout: dropout of the weights (DropATT).
        causal: whether a query sees only keys at its own position and before.
    """

    def __init__(
        self,
        *,
        positions: nn.Module | None = None,
        distribution: Callable[[Tensor, Tensor | None], Tensor] = softmax,
        dropout: float = 0.0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.positions = positions
        self.distribution = distribution
        self.dropout = Dropout(dropout)
        self.causal = causal

    def forward(self, queries: Tensor, tokens: ActiveTokens, memory: Memory) -> Tensor:
        """Attend.

        Args:
            queries: `(num_tokens, top_k, num_heads, head_dim)`.
            tokens: where the queries stand in their sentences.
            memory: keys and values.

        Returns:
            `(num_tokens, top_k, num_heads, head_dim)`.
        """
        arrangement = tokens.arrange(memory.rows, memory.keys.shape[0])
        if arrangement.present is not None:
            memory = memory.select(arrangement.present)
        top_k, num_heads, head_dim = queries.shape[1:]
        num_keys = memory.keys.shape[2]
        scaled = arrangement.by_sentence(queries / math.sqrt(head_dim))
        # (rows, width, top_k, heads, dim) -> (rows, heads, width, top_k, dim)
        scaled = scaled.permute(0, 3, 1, 2, 4)
        shape = (*scaled.shape[:4], num_keys)
        scores = (scaled.flatten(2, 3) @ memory.keys.transpose(2, 3)).view(shape)
        # A single new position comes after all that a cache holds.
        hides_later = self.causal and tokens.length > 1
        positions = None
        if self.positions is not None or hides_later:
            positions = arrangement.by_sentence(tokens.column) + memory.query_offset
        if self.positions is not None:
            furthest = tokens.length - 1 + memory.query_offset
            scores = scores + self.positions(scaled, positions, num_keys, furthest)
        visible = visible_keys(positions if hides_later else None, memory)
        weights = self.dropout(self.distribution(scores, visible))
        context = torch.matmul(weights.flatten(2, 3), memory.values.to(weights.dtype))
        context = context.view(*shape[:4], head_dim).permute(0, 2, 3, 1, 4)
        return arrangement.from_sentences(context)
