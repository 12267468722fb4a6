"""The part that all attention kinds share: scores, distribution, weighted sum."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.attention.distributions import softmax
from sut_fairseq.modules.attention.interface import Memory, visible_keys
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.tokens import ActiveTokens


class AttentionCore(nn.Module):
    """context = distribution(q . k + position scores) v, with k divided by sqrt(head_dim) before.

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
        # (rows, width, top_k, heads, dim) -> (rows, heads, width, top_k, dim)
        by_row = arrangement.by_sentence(queries).permute(0, 3, 1, 2, 4)
        # A single new position comes after all that a cache holds.
        hides_later = self.causal and tokens.length > 1
        positions = None
        if self.positions is not None or hides_later:
            positions = arrangement.by_sentence(tokens.column) + memory.query_offset
        visible = visible_keys(positions if hides_later else None, memory)
        if self._can_fuse(queries):
            context = _fused(by_row, memory, visible, self.dropout.p if self.training else 0.0)
        else:
            furthest = tokens.length - 1 + memory.query_offset
            context = self._step_by_step(by_row, memory, visible, positions, furthest)
        return arrangement.from_sentences(context.permute(0, 2, 3, 1, 4))

    def _can_fuse(self, queries: Tensor) -> bool:
        """Whether torch's fused attention computes the same, and not more slowly.

        It knows softmax alone. On a CPU it has no fused form with dropout.
        """
        dropout = self.training and self.dropout.p > 0
        plain = self.positions is None and self.distribution is softmax
        return plain and (queries.is_cuda or not dropout)

    def _step_by_step(
        self,
        queries: Tensor,
        memory: Memory,
        visible: Tensor | None,
        positions: Tensor | None,
        furthest: int,
    ) -> Tensor:
        """Scores, distribution and weighted sum for `(rows, heads, width, top_k, dim)` queries."""
        num_keys = memory.keys.shape[2]
        shape = (*queries.shape[:4], num_keys)
        scores = (queries.flatten(2, 3) @ memory.keys.transpose(2, 3)).view(shape)
        if self.positions is not None:
            scores = scores + self.positions(queries, positions, num_keys, furthest)
        weights = self.dropout(self.distribution(scores, visible))
        context = torch.matmul(weights.flatten(2, 3), memory.values.to(weights.dtype))
        return context.view(queries.shape)


def _fused(queries: Tensor, memory: Memory, visible: Tensor | None, dropout: float) -> Tensor:
    """The same for softmax without position scores, by torch's kernels, weights never in memory."""
    mask = None
    if visible is not None:
        # The least finite number, not -inf: a row without visible keys (padding) stays finite.
        mask = torch.zeros(visible.shape, dtype=queries.dtype, device=visible.device)
        mask = mask.masked_fill_(~visible, torch.finfo(queries.dtype).min).unsqueeze(1)
        if mask.shape[2] > 1:
            mask = mask.repeat_interleave(queries.shape[3], dim=2)
    keys, values = memory.keys.to(queries.dtype), memory.values.to(queries.dtype)
    context = F.scaled_dot_product_attention(
        queries.flatten(2, 3), keys, values, attn_mask=mask, dropout_p=dropout, scale=1.0
    )
    return context.view(queries.shape)
