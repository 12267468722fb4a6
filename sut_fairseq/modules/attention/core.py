"""Search and retrieval, the building blocks of attention kinds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.arrangement import Arrangement
from sut_fairseq.modules.attention.distributions.gaze import MovingGaze, Sentences
from sut_fairseq.modules.attention.distributions.interface import Distribution
from sut_fairseq.modules.attention.distributions.softmax import Softmax, hiding
from sut_fairseq.modules.attention.interface import Memory, visible_keys
from sut_fairseq.modules.attention.positions.content import ContentScores
from sut_fairseq.modules.attention.positions.interface import Pairing, Scores
from sut_fairseq.modules.attention.retrieve import PairedHeads, Retrieve
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.tokens import ActiveTokens


class AttentionCore(nn.Module):
    """Search: weights = dropout(distribution(scores)); then retrieve: weights, values -> context.

    Each token may bring several groups of heads (the experts it chose); all groups share the keys
    and values, which are not repeated in memory: groups fold into the query axis.

    Args:
        positions: the kind of scores: how positions count in them (`positions`); None: not at all.
        distribution: scores to weights (`distributions`), or a gaze that moves from query to query
            in cross-attention, with a single group of heads; None: softmax.
        retrieve: weights and values to context (`retrieve`); None: head by head.
        dropout: dropout of the weights (DropATT).
        causal: whether a query sees only keys at its own position and before.
    """

    def __init__(
        self,
        *,
        positions: Scores | None = None,
        distribution: Distribution | MovingGaze | None = None,
        retrieve: Retrieve | None = None,
        dropout: float = 0.0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.positions = ContentScores() if positions is None else positions
        self.distribution = Softmax() if distribution is None else distribution
        self.retrieve = PairedHeads() if retrieve is None else retrieve
        self.dropout = Dropout(dropout)
        self.causal = causal

    @property
    def reads_keys(self) -> bool:
        """Whether weights depend on keys."""
        return not isinstance(self.distribution, MovingGaze) or self.distribution.reads_scores

    def forward(
        self,
        queries: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        states: Tensor,
        look: Look | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            queries: `(num_tokens, top_k, num_heads, head_dim)`.
            tokens: where the queries stand in their sentences.
            memory: keys and values.
            states: what the queries were made from, `(num_tokens, embed_dim)`; some kinds of scores
                read them too.
            look: receives the "weights", see `Observer.saw`.

        Returns:
            `(num_tokens, top_k, num_heads, ...)`; the last axes depend on the retrieval.
        """
        if isinstance(self.distribution, MovingGaze):
            memory = memory.for_each_sentence()
        arrangement = tokens.arrange(memory.rows, memory.keys.shape[0])
        if arrangement.present is not None:
            memory = memory.select(arrangement.present)
        # A single new position comes after all that a cache holds.
        hides_later = self.causal and tokens.length > 1
        positions = None
        if self.positions.needs_positions or self.distribution.needs_positions or hides_later:
            positions = _positions(tokens, arrangement, memory)
        visible = visible_keys(positions if hides_later else None, memory)
        # (rows, width, top_k, heads, dim) -> (rows, heads, width, top_k, dim)
        by_row = arrangement.by_sentence(queries).permute(0, 3, 1, 2, 4).contiguous()
        if look is None and self._can_fuse(by_row):
            context = _fused(by_row, memory, visible, self.dropout.p if self.training else 0.0)
        else:
            of_states = self.positions.of_states(states)
            if of_states is not None:
                of_states = arrangement.by_sentence(of_states).transpose(1, 2)
            furthest = tokens.length - 1 + memory.query_offset
            pairing = Pairing(
                by_row, memory.keys, positions, furthest, memory.padding_mask, of_states
            )
            shown: Look | None = None
            if look is not None:
                shown = lambda name, values: look(  # noqa: E731
                    name, arrangement.from_sentences(values.transpose(1, 2))
                )
            if isinstance(self.distribution, MovingGaze):
                weights = self._moving_weights(pairing, tokens, arrangement, memory, shown)
            else:
                weights = self.distribution(self.positions(pairing), visible, positions)
            if shown is not None:
                shown("weights", weights)
            context = self.retrieve(self.dropout(weights), memory.values)
        return arrangement.from_sentences(context.movedim(1, 3))

    def _moving_weights(
        self,
        pairing: Pairing,
        tokens: ActiveTokens,
        arrangement: Arrangement,
        memory: Memory,
        look: Look | None,
    ) -> Tensor:
        """Weights by a gaze that moves along the queries of each sentence."""
        assert isinstance(self.distribution, MovingGaze), "else weights know no order"
        scores = self.positions(pairing) if self.distribution.reads_scores else None
        taken, in_front = tokens.active, tokens.active is None
        if taken is None and arrangement.slot is not None:
            taken = tokens.column.new_ones(len(tokens), dtype=torch.bool)
        if taken is not None:
            taken = arrangement.by_sentence(taken)
        queries = pairing.queries.squeeze(3)
        gaze, batch = memory.gaze, tokens.batch
        sentences = Sentences(queries, taken, in_front, gaze, arrangement.present, batch)
        num_keys = memory.keys.shape[2]
        return self.distribution(sentences, scores, num_keys, memory.padding_mask, look)

    def _can_fuse(self, queries: Tensor) -> bool:
        """Whether torch's fused attention computes the same, and not more slowly.

        It never gives out its weights. On a CPU it has no fused kernel with dropout.
        """
        dropout = self.training and self.dropout.p > 0
        plain = self.positions.fuses and self.distribution.fuses and self.retrieve.fuses
        return plain and (queries.device.type != "cpu" or not dropout)

    def num_products(self, queries: Tensor, tokens: ActiveTokens, memory: Memory) -> int:
        """Multiplications of search and retrieval, with all keys for each query.

        The arguments are those of `forward`.
        """
        num_keys, furthest = memory.keys.shape[2], tokens.length - 1 + memory.query_offset
        per_query = num_keys + self.positions.num_position_products(num_keys, furthest)
        if not self.reads_keys:
            per_query = 0
        retrieved = num_keys * self.retrieve.products_per_key(memory.values)
        return queries.numel() * per_query + queries[..., 0].numel() * retrieved


def _positions(tokens: ActiveTokens, arrangement: Arrangement, memory: Memory) -> Tensor:
    """Position of each query among the keys, `(rows or 1, width)`."""
    if tokens.in_front and memory.rows is None:
        columns = torch.arange(arrangement.width, device=memory.keys.device).unsqueeze(0)
    else:
        columns = arrangement.by_sentence(tokens.column)
    return columns + memory.query_offset


def _fused(queries: Tensor, memory: Memory, visible: Tensor | None, dropout: float) -> Tensor:
    """The context for softmax of plain scores, head by head, by torch's fused kernels."""
    mask = None
    if visible is not None:
        mask = hiding(visible, queries.dtype).unsqueeze(1)
        if mask.shape[2] > 1:
            mask = mask.repeat_interleave(queries.shape[3], dim=2)
    keys, values = memory.keys.to(queries.dtype), memory.values.to(queries.dtype)
    values = values.expand(-1, keys.shape[1], -1, -1)  # all heads may share one
    context = F.scaled_dot_product_attention(
        queries.flatten(2, 3), keys, values, attn_mask=mask, dropout_p=dropout
    )
    return context.view(*queries.shape[:4], values.shape[3])
