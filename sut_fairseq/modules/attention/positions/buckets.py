"""Learned biases for relative positions in buckets."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check
from sut_fairseq.modules.attention.positions.interface import Pairing, Scores, scaled_products


class RelativeBuckets(Scores):
    """Learned relative position biases in buckets of growing width (T5; Raffel et al. 2020).

    Half of the buckets of one direction hold one offset each; the rest grow logarithmically up to
    `max_distance`, and the last one takes everything beyond.

    Args:
        num_heads: number of heads that have biases of their own.
        num_buckets: number of buckets, divided between both directions unless causal.
        max_distance: distance from which all offsets share a bucket.
        causal: whether only earlier keys are visible, so that all buckets look backwards.
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, causal: bool
    ) -> None:
        super().__init__()
        check(num_buckets >= 4, "attention_buckets", "at least 4", num_buckets)
        self.per_direction = num_buckets if causal else num_buckets // 2
        check(
            max_distance > self.per_direction // 2,
            "attention_max_distance",
            f"greater than {self.per_direction // 2}, the number of offsets that have a bucket of "
            f"their own with `attention_buckets` {num_buckets}",
            max_distance,
        )
        self.max_distance = max_distance
        self.causal = causal
        self.bias = nn.Parameter(torch.zeros(num_heads, num_buckets))

    def bucket(self, offset: Tensor) -> Tensor:
        """Bucket of each offset (key position minus query position), any shape, int64."""
        per_direction = self.per_direction
        distance = (-offset).clamp(min=0) if self.causal else offset.abs()
        exact = per_direction // 2
        logarithm = torch.log(distance.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        spread = exact + (logarithm * (per_direction - exact)).long()
        within = torch.where(distance < exact, distance, spread.clamp(max=per_direction - 1))
        return within if self.causal else within + (offset > 0) * per_direction

    def forward(self, pairing: Pairing) -> Tensor:
        positions = pairing.positions
        assert positions is not None
        key_positions = torch.arange(pairing.keys.shape[2], device=positions.device)
        bias = self.bias[:, self.bucket(key_positions - positions.unsqueeze(-1))]
        scores = scaled_products(pairing.queries, pairing.keys)
        return scores + bias.transpose(0, 1).unsqueeze(3).to(scores.dtype)
