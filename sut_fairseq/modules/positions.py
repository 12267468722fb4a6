"""Absolute positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(places: Tensor, embed_dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sinusoids of positions (Vaswani et al. 2017), in the layout of tensor2tensor.

    The embedding of p is [sin(p f_0), ..., sin(p f_{n-1}), cos(p f_0), ...] with frequencies
    that fall geometrically from 1 to 1/10,000, and a 0 at the end if `embed_dim` is odd.

    Args:
        places: any whole numbers, `(n,)`.
        embed_dim: size of an embedding.

    Returns:
        `(n, embed_dim)`.
    """
    half = embed_dim // 2
    step = math.log(10000) / max(half - 1, 1)
    frequencies = torch.exp(torch.arange(half, dtype=dtype, device=places.device) * -step)
    angles = places.to(dtype).unsqueeze(1) * frequencies
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return nn.functional.pad(table, (0, embed_dim % 2))


class SinusoidalPositions(nn.Module):
    """Sinusoidal position embeddings, see `sinusoids`; padding is 0, tokens count from `first`.

    Args:
        embed_dim: size of an embedding.
        max_positions: greatest length of a sentence; longer ones need a new table in each call.
        first: position of a sentence's first token. fairseq counts from the padding index + 1.
    """

    table: Tensor

    def __init__(self, embed_dim: int, max_positions: int, *, first: int) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.first = first
        self.register_buffer("table", self._build(max_positions), persistent=False)

    def forward(self, padding_mask: Tensor, offset: int = 0) -> Tensor:
        """Embeddings of columns `offset` and after, `(batch, length - offset, embed_dim)`.

        Args:
            padding_mask: True at padding, `(batch, length)`.
            offset: number of columns to leave out at the start.
        """
        table = self.table
        length = padding_mask.shape[1]
        if length >= table.shape[0]:
            # Made on the device that needs it: a CUDA graph cannot wait for a copy.
            table = self._build(length, table.device).to(table.dtype)
        real = ~padding_mask
        place = (real.cumsum(dim=1) * real)[:, offset:]
        return table[place]

    def _build(self, max_positions: int, device: torch.device | None = None) -> Tensor:
        """Row 0 for padding, then one for each position."""
        places = torch.arange(self.first, self.first + max_positions, device=device)
        return nn.functional.pad(sinusoids(places, self.embed_dim), (0, 0, 1, 0))
