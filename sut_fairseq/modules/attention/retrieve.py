"""Retrieval: what a query takes from the values, given its attention weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Retrieve(ABC):
    """Base of the kinds of retrieval.

    Attributes:
        fuses: whether torch's fused attention, which pairs head i of the weights with head i of
            the values, computes the same.
    """

    fuses: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, weights: Tensor, values: Tensor) -> Tensor:
        """Sum values by weights.

        Args:
            weights: `(rows, num_heads, width, top_k, num_keys)`.
            values: `(rows, num_value_heads, num_keys, value_dim)`.

        Returns:
            `(rows, num_heads, width, top_k, ...)`; the last axes depend on the kind.
        """

    @abstractmethod
    def products_per_key(self, values: Tensor) -> int:
        """Multiplications that each weight takes part in."""


class PairedHeads(Retrieve):
    """As in multi-head attention, head i of the weights sums head i of the values, or the only one.

    Returns `(rows, num_heads, width, top_k, value_dim)`.
    """

    fuses: ClassVar[bool] = True

    def __call__(self, weights: Tensor, values: Tensor) -> Tensor:
        context = torch.matmul(weights.flatten(2, 3), values.to(weights.dtype))
        return context.view(*weights.shape[:4], values.shape[3])

    def products_per_key(self, values: Tensor) -> int:
        return values.shape[3]


class EveryValue(Retrieve):
    """Every head of the weights sums every head of the values, in one product (COMP Eq. 10).

    Returns `(rows, num_heads, width, top_k, num_value_heads, value_dim)`.
    """

    def __call__(self, weights: Tensor, values: Tensor) -> Tensor:
        rows, num_values, num_keys, value_dim = values.shape
        side_by_side = values.to(weights.dtype).transpose(1, 2).reshape(rows, num_keys, -1)
        context = torch.bmm(weights.flatten(1, 3), side_by_side)
        return context.view(*weights.shape[:4], num_values, value_dim)

    def products_per_key(self, values: Tensor) -> int:
        return values.shape[1] * values.shape[3]


class OwnValues(Retrieve):
    """Every head of the weights sums several heads of the values that no other head uses.

    Those of head i are consecutive, starting at i * num_values. Returns
    `(rows, num_heads, width, top_k, num_values, value_dim)`.

    Args:
        num_values: how many each head has.
    """

    def __init__(self, num_values: int) -> None:
        self.num_values = num_values

    def __call__(self, weights: Tensor, values: Tensor) -> Tensor:
        by_head = values.to(weights.dtype).unflatten(1, (-1, self.num_values))
        # (rows, num_heads, num_values, num_keys, value_dim) -> (rows, num_heads, num_keys, ...)
        context = torch.matmul(weights.flatten(2, 3), by_head.transpose(2, 3).flatten(3))
        return context.view(*weights.shape[:4], self.num_values, values.shape[3])

    def products_per_key(self, values: Tensor) -> int:
        return self.num_values * values.shape[3]
