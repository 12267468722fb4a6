"""Scores in which positions do not count."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sut_fairseq.modules.attention.positions.interface import Pairing, Scores, scaled_products


class ContentScores(Scores):
    """score(i, j) = q_i . k_j / sqrt(head_dim)."""

    needs_positions: ClassVar[bool] = False
    fuses: ClassVar[bool] = True

    def forward(self, pairing: Pairing) -> Tensor:
        return scaled_products(pairing.queries, pairing.keys)
