"""From attention scores to attention weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.geometric import geometric, geometric_to_the_left


def softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the visible keys, computed in float32 or better.

    Args:
        scores: `(batch, num_heads, width, top_k, num_keys)`.
        visible: True where the key may be attended to, `(batch or 1, width or 1, num_keys)`; None:
            all.

    Returns:
        weights of the shape and dtype of `scores`; each row sums to 1.
    """
    if visible is not None:
        # The least finite number underflows to a weight of exactly 0, as -inf would, but a row
        # without any visible key (an empty sentence) then stays finite.
        hidden = ~visible[:, None, :, None]
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    return scores.softmax(dim=-1, dtype=dtype).to(scores.dtype)


class Softmax(nn.Module):
    """`softmax` as a module."""

    needs_positions = False

    def forward(self, scores: Tensor, visible: Tensor | None, positions: Tensor | None) -> Tensor:
        return softmax(scores, visible)


class Geometric(nn.Module):
    """The closest key that matches: `geometric`, in a decoder `geometric_to_the_left`.

    Args:
        causal: whether only keys before the query may match.
    """

    needs_positions = True

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, scores: Tensor, visible: Tensor | None, positions: Tensor) -> Tensor:
        if self.causal:
            return geometric_to_the_left(scores, visible, positions)
        return geometric(scores, visible, positions)
