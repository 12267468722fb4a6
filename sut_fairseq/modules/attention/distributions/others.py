"""Softmax over the other tokens: no token attends to itself."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sut_fairseq.modules.attention.distributions.interface import Distribution
from sut_fairseq.modules.attention.distributions.softmax import softmax


class OthersSoftmax(Distribution):
    """Softmax over all visible keys but the one at the query's position (COMP C.1).

    A token that sees no other, such as the first one of a decoder, has weights of 0.
    """

    needs_positions: ClassVar[bool] = True

    def forward(self, scores: Tensor, visible: Tensor | None, positions: Tensor | None) -> Tensor:
        assert positions is not None
        keys = torch.arange(scores.shape[-1], device=scores.device)
        others = keys != positions.unsqueeze(-1)
        if visible is not None:
            others = others & visible
        return softmax(scores, others) * others[:, None, :, None]
