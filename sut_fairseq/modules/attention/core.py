"""The part that all attention kinds share: scores, distribution, weighted sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.arrangement import Arrangement
from sut_fairseq.modules.attention.distributions import Softmax
from sut_fairseq.modules.attention.interface import Memory, Pairing, visible_keys
from sut_fairseq.modules.attention.position_scores import PositionScores, content_scores
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.tokens import ActiveTokens


class AttentionCore(nn.Module):
    """context = distribution(scores) v, the scores being q . k unless positions count.

    Each token may bring several groups of heads (the experts it chose); all groups share the keys
    and values, which are not repeated in memory: groups fold into the query axis.

    Args:
        positions: a kind of scores that positions count in (`position_scores`), or None.
        distribution: scores to weights (`distributions`).
        dropout: dropout of the weights (DropATT).
        causal: whether a query sees only keys at its own position and before.

    Attributes:
        may_fuse: whether torch's fused attention may be used, in which weights never appear.
    """

    def __init__(
        self,
        *,
        positions: PositionScores | None = None,
        distribution: nn.Module | None = None,
        dropout: float = 0.0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.positions = positions
        self.distribution = Softmax() if distribution is None else distribution
        self.dropout = Dropout(dropout)
        self.causal = causal
        self.may_fuse = True

    def forward(
        self, queries: Tensor, tokens: ActiveTokens, memory: Memory, states: Tensor
    ) -> Tensor:
        """Attend.

        Args:
            queries: `(num_tokens, top_k, num_heads, head_dim)`.
            tokens: where the queries stand in their sentences.
            memory: keys and values; the keys are divided by sqrt(head_dim) already.
            states: what the queries were made from, `(num_tokens, embed_dim)`; some kinds of scores
                look at them too.

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
        if self.positions is not None or self.distribution.needs_positions or hides_later:
            positions = _positions(tokens, arrangement, memory)
        visible = visible_keys(positions if hides_later else None, memory)
        if self._can_fuse(queries):
            context = _fused(by_row, memory, visible, self.dropout.p if self.training else 0.0)
        else:
            scores = self._scores(by_row, tokens, arrangement, memory, positions, states)
            weights = self.dropout(self.distribution(scores, visible, positions))
            context = torch.matmul(weights.flatten(2, 3), memory.values.to(weights.dtype))
            context = context.view(by_row.shape)
        return arrangement.from_sentences(context.permute(0, 2, 3, 1, 4))

    def _can_fuse(self, queries: Tensor) -> bool:
        """Whether torch's fused attention computes the same, and not more slowly.

        It knows softmax alone. On a CPU it has no fused form with dropout.
        """
        dropout = self.training and self.dropout.p > 0
        plain = self.positions is None and isinstance(self.distribution, Softmax)
        return self.may_fuse and plain and (queries.is_cuda or not dropout)

    def _scores(
        self,
        queries: Tensor,
        tokens: ActiveTokens,
        arrangement: Arrangement,
        memory: Memory,
        positions: Tensor | None,
        states: Tensor,
    ) -> Tensor:
        """Scores `(rows, heads, width, top_k, num_keys)` of `(rows, heads, width, top_k, dim)`."""
        if self.positions is None or positions is None:
            return content_scores(queries, memory.keys)
        own = self.positions.of_states(states)
        if own is not None:
            own = arrangement.by_sentence(own).transpose(1, 2)
        furthest = tokens.length - 1 + memory.query_offset
        return self.positions(
            Pairing(queries, memory.keys, positions, furthest, memory.padding_mask, own)
        )


def _positions(tokens: ActiveTokens, arrangement: Arrangement, memory: Memory) -> Tensor:
    """Position of each query among the keys, `(rows or 1, width)`."""
    if tokens.fills_grid and memory.rows is None:
        columns = torch.arange(tokens.length, device=memory.keys.device).unsqueeze(0)
    else:
        columns = arrangement.by_sentence(tokens.column)
    return columns + memory.query_offset


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
