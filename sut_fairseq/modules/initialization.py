"""Linear layers as the Transformer literature initialises them."""

from __future__ import annotations

from torch import nn


def xavier_linear(in_features: int, out_features: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with Xavier-uniform weights and a zero bias."""
    layer = nn.Linear(in_features, out_features, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
