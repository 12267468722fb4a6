"""Interface of the kinds of distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn


class Distribution(nn.Module, ABC):
    """Base of the kinds of distribution: attention scores to attention weights.

    Attributes:
        needs_positions: whether `positions` are read; else they may be None.
        fuses: whether torch's fused attention, which supports only softmax, computes the same.
    """

    needs_positions: ClassVar[bool] = False
    fuses: ClassVar[bool] = False

    @abstractmethod
    def forward(self, scores: Tensor, visible: Tensor | None, positions: Tensor | None) -> Tensor:
        """Turn scores into weights.

        Args:
            scores: `(rows, num_heads, width, top_k, num_keys)`, scaled already.
            visible: True where the key may be attended to, `(rows or 1, width or 1, num_keys)`;
                None: all.
            positions: position of each query, in self-attention among the keys, `(rows or 1,
                width)`.

        Returns:
            weights of the shape and dtype of `scores`: exactly 0 at hidden keys; in rows that see
            no key, any finite values.
        """
