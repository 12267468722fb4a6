"""A stop that cannot count: the end comes when attention rests on the last source word."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.precision import exact

_CLEAR = 1e-6  # keeps log-odds finite


class StopGate(nn.Module):
    """The probability of the end token from where attention rests, and from nothing else.

    P(end) = sigmoid(scale * logit(m) + shift), m the weight of the last source word; the other
    words share the rest as their scores say. The decoder's state, which can count tokens, has no
    part in it. It starts as P(end) = m.

    Args:
        end: index of the end token.
    """

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end
        self.scale = nn.Parameter(torch.ones(()))
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, scores: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
        """Replace the score of the end token.

        Args:
            scores: `(batch, width, vocabulary)`.
            weights: attention, `(batch, width, num_keys)`.
            lengths: number of source words, `(batch,)`; the last one is where attention may rest.

        Returns:
            log-probabilities of the shape of `scores`, float32 or better.
        """
        last = (lengths - 1).view(-1, 1, 1).expand(-1, weights.shape[1], 1)
        mass = exact(weights).gather(2, last).clamp(_CLEAR, 1 - _CLEAR)
        log_odds = self.scale * mass.logit() + self.shift
        end = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
        end[self.end] = True
        others = exact(scores).masked_fill(end, -torch.inf).log_softmax(dim=-1)
        return torch.where(end, F.logsigmoid(log_odds), others + F.logsigmoid(-log_odds))
