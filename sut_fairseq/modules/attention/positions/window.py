"""Learned relative positions within a window."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check
from sut_fairseq.modules.attention.positions.by_key import by_key
from sut_fairseq.modules.attention.positions.interface import Pairing, Scores, scaled_products


class RelativeWindow(Scores):
    """Learned relative position embeddings within a window (SUT 3.1; Shaw et al. 2018).

    score(i, j) = q_i . (k_j + r[clip(j - i, -W, W)]) / sqrt(head_dim), with embeddings r per head,
    initialised to zero.

    Args:
        num_heads: number of heads that have embeddings of their own.
        head_dim: size of a query.
        window: W, the greatest offset with an embedding; greater ones are clipped to it.
        causal: whether only earlier keys are visible; the scores of later ones are undefined.
    """

    def __init__(self, num_heads: int, head_dim: int, window: int, *, causal: bool = False) -> None:
        super().__init__()
        check(window >= 0, "attention_window", "at least 0", window)
        self.window = window
        self.causal = causal
        self.embedding = nn.Parameter(torch.zeros(num_heads, 2 * window + 1, head_dim))

    def forward(self, pairing: Pairing) -> Tensor:
        queries, num_keys, furthest = pairing.queries, pairing.keys.shape[2], pairing.furthest
        assert pairing.positions is not None
        lowest, highest = self._offsets(num_keys, furthest)
        embedding = self.embedding[:, lowest + self.window : highest + self.window + 1]
        # In causal attention, no gradient comes back from later keys.
        may_clip = furthest > -lowest or (not self.causal and num_keys - 1 > highest)
        by_offset = scaled_products(queries, embedding.unsqueeze(0))
        scores = by_key(by_offset, pairing.positions + lowest, num_keys, may_clip=may_clip)
        return scaled_products(queries, pairing.keys, plus=scores)

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        lowest, highest = self._offsets(num_keys, furthest)
        return highest - lowest + 1

    def _offsets(self, num_keys: int, furthest: int) -> tuple[int, int]:
        """Lowest and highest offset within the window that can occur."""
        highest = 0 if self.causal else min(self.window, num_keys - 1)
        return max(-self.window, -furthest), highest
