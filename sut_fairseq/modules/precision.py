"""Where half precision would not do: softmax, positions, and what halting and routing add up."""

from __future__ import annotations

import torch
from torch import Tensor


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 or better: float64 stays what it is."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def exact(values: Tensor) -> Tensor:
    """The values in float32 or better."""
    return values.to(exact_dtype(values.dtype))
