"""What half precision is too coarse for: softmax, positions, and sums of halting and routing."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

# Number of float32 values in the widest vector register of a CPU (AVX-512).
_REGISTER = 16


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 or better: float64 stays what it is."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def exact(values: Tensor) -> Tensor:
    """The values in float32 or better."""
    return values.to(exact_dtype(values.dtype))


def exact_linear(layer: nn.Linear, values: Tensor) -> Tensor:
    """The layer's output for the values, computed in float32 or better.

    `exact(layer(values))` would come too late: autocast has rounded the layer's result by then.
    """
    parameters = {name: exact(own) for name, own in layer.named_parameters()}
    device = "cpu" if values.is_meta else values.device.type  # "meta" has no autocast
    with torch.autocast(device, enabled=False):
        # Still a call of the module: hooks count what it computes.
        result: Tensor = functional_call(layer, parameters, exact(values))
    return result


def exact_softmax(scores: Tensor) -> Tensor:
    """Softmax along the last axis, in float32 or better.

    On a CPU, torch's softmax takes up to ten times as long along a last axis shorter than a vector
    register as along a first one; sentences of formal languages, and retrievals, are that short. In
    this case the result is a transposed view of contiguous memory.

    Args:
        scores: `(..., num)`, in any precision; hidden ones are so low that their weight is 0.

    Returns:
        weights of the shape of `scores`, each row of which sums to 1: float64 for float64, else
        float32.
    """
    num = scores.shape[-1]
    if scores.device.type != "cpu" or not 0 < num < _REGISTER or torch.compiler.is_compiling():
        return scores.softmax(dim=-1, dtype=exact_dtype(scores.dtype))
    columns = exact(scores).reshape(-1, num).t()
    return columns.softmax(dim=0).t().view(scores.shape)
