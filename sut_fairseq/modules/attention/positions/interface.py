"""Interface of the kinds of scores; products of queries and keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn


class Pairing(NamedTuple):
    """Queries next to the keys that they are scored with.

    Attributes:
        queries: `(rows, num_heads, width, top_k, head_dim)`.
        keys: `(rows, num_heads, num_keys, head_dim)`.
        positions: position of each query among the keys, `(rows or 1, width)`; None if neither
            scores nor distribution nor causality need it.
        furthest: upper bound of `positions`, so that only offsets that can occur are computed.
        padding_mask: True where the key is padding, `(rows, num_keys)`; None: no padding.
        of_states: what `Scores.of_states` returned for the queries' states,
            `(rows, num_heads, width, size)`, or None.
    """

    queries: Tensor
    keys: Tensor
    positions: Tensor | None
    furthest: int
    padding_mask: Tensor | None = None
    of_states: Tensor | None = None


class Scores(nn.Module, ABC):
    """Base of the kinds of scores: q . k, and what positions add to it.

    A kind scales its scores itself, through `scaled_products` or a learned factor.

    Attributes:
        needs_positions: whether `Pairing.positions` are read; else they may be None.
        fuses: whether torch's fused attention computes the same scores: plain q . k.
    """

    needs_positions: ClassVar[bool] = True
    fuses: ClassVar[bool] = False

    @abstractmethod
    def forward(self, pairing: Pairing) -> Tensor:
        """Scores of all pairs, `(rows, num_heads, width, top_k, num_keys)`."""

    def of_states(self, states: Tensor) -> Tensor | None:
        """What the scores need to know about the queries' states.

        Args:
            states: `(num_tokens, embed_dim)`.

        Returns:
            `(num_tokens, num_heads, size)`, or None for nothing.
        """
        return None

    def num_position_products(self, num_keys: int, furthest: int) -> int:
        """Products of size head_dim that each query takes besides those with the keys."""
        return 0


def scaled_products(queries: Tensor, keys: Tensor, plus: Tensor | None = None) -> Tensor:
    """q . k / sqrt(head_dim) of all pairs: the one place where scores are scaled.

    Args:
        queries: `(rows, num_heads, width, top_k, head_dim)`.
        keys: `(rows or 1, num_heads, num_keys, head_dim)`.
        plus: what is added, of the result's shape.

    Returns:
        `(rows, num_heads, width, top_k, num_keys)`.
    """
    flat = queries.flatten(2, 3)
    keys = keys.to(queries.dtype).expand(flat.shape[0], -1, -1, -1).transpose(2, 3)
    # Factor and sum are part of the matrix product: no extra pass; beta = 0 adds nothing.
    added = flat.new_empty(()) if plus is None else plus.flatten(2, 3).flatten(0, 1)
    scores = torch.baddbmm(
        added,
        flat.flatten(0, 1),
        keys.flatten(0, 1),
        beta=int(plus is not None),
        alpha=queries.shape[-1] ** -0.5,
    )
    return scores.view(*queries.shape[:4], keys.shape[3])


def of_heads(bias: Tensor, queries: Tensor) -> Tensor:
    """A bias `(num_heads, head_dim)` for `(rows, num_heads, width, top_k, head_dim)` queries."""
    return bias[:, None, None].to(queries.dtype)
