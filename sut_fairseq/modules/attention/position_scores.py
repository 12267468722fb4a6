"""Position-dependent terms that are added to the content scores of self-attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sut_fairseq.modules.errors import check


class RelativeWindow(nn.Module):
    """Learned relative position embeddings within a window (SUT 3.1; Shaw et al. 2018).

    score(i, j) = q_i . r[clip(j - i, -W, W)], with embeddings r per head, initialised to zero.

    Args:
        num_heads: number of heads that have embeddings of their own.
        head_dim: size of a query.
        window: W, the greatest offset that is told apart.
    """

    def __init__(self, num_heads: int, head_dim: int, window: int) -> None:
        super().__init__()
        check(window >= 0, "attention_window", "at least 0", window)
        self.window = window
        self.embedding = nn.Parameter(torch.zeros(num_heads, 2 * window + 1, head_dim))

    def forward(self, queries: Tensor, positions: Tensor, num_keys: int, furthest: int) -> Tensor:
        """Score all keys for each query.

        Args:
            queries: scaled queries, `(batch, num_heads, width, top_k, head_dim)`.
            positions: position of each query among the keys, `(batch, width)`.
            num_keys: number of keys.
            furthest: upper bound of `positions`, so that only offsets that can occur are computed.

        Returns:
            `(batch, num_heads, width, top_k, num_keys)`.
        """
        batch, num_heads, width, top_k, head_dim = queries.shape
        lowest, highest = max(-self.window, -furthest), min(self.window, num_keys - 1)
        embedding = self.embedding[:, lowest + self.window : highest + self.window + 1]
        by_offset = queries.flatten(2, 3) @ embedding.to(queries.dtype).transpose(1, 2)
        by_offset = by_offset.view(batch, num_heads, width, top_k, -1)
        key_positions = torch.arange(num_keys, device=positions.device)
        offset = (key_positions - positions.unsqueeze(-1)).clamp(lowest, highest) - lowest
        index = offset[:, None, :, None].expand(-1, num_heads, -1, top_k, -1)
        return by_offset.gather(-1, index)


class RelativeBuckets(nn.Module):
    """Learned relative position biases in buckets of growing width (T5; Raffel et al. 2020).

    Half of the buckets of one direction hold one offset each; the rest grow logarithmically up to
    `max_distance`, and the last one takes everything beyond.

    Args:
        num_heads: number of heads that have biases of their own.
        num_buckets: number of buckets, shared out between both directions unless causal.
        max_distance: distance from which all offsets share a bucket.
        causal: whether only earlier keys are visible, so that all buckets look backwards.
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, causal: bool
    ) -> None:
        super().__init__()
        check(num_buckets >= 4, "attention_buckets", "at least 4", num_buckets)
        check(
            max_distance > num_buckets // 2,
            "attention_max_distance",
            f"greater than half of `attention_buckets` ({num_buckets})",
            max_distance,
        )
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.causal = causal
        self.bias = nn.Parameter(torch.zeros(num_heads, num_buckets))

    def bucket(self, offset: Tensor) -> Tensor:
        """Bucket of each offset (key position minus query position), any shape, int64."""
        per_direction = self.num_buckets if self.causal else self.num_buckets // 2
        distance = (-offset).clamp(min=0) if self.causal else offset.abs()
        exact = per_direction // 2
        logarithm = torch.log(distance.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        spread = exact + (logarithm * (per_direction - exact)).long()
        within = torch.where(distance < exact, distance, spread.clamp(max=per_direction - 1))
        return within if self.causal else within + (offset > 0) * per_direction

    def forward(self, queries: Tensor, positions: Tensor, num_keys: int, furthest: int) -> Tensor:
        """Score all keys for each query; arguments and result as in `RelativeWindow`."""
        key_positions = torch.arange(num_keys, device=positions.device)
        bias = self.bias[:, self.bucket(key_positions - positions.unsqueeze(-1))]
        return bias.transpose(0, 1).unsqueeze(3).to(queries.dtype)
