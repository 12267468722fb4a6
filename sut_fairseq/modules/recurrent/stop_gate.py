"""A stop gate that cannot count: the output ends when attention reaches the end of the source."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.precision import exact

_CLEAR = 1e-4  # keeps log-odds finite


class StopGate(nn.Module):
    """The probability of the end token from where attention is, and from nothing else.

    P(end) = sigmoid(a logit(m) + b logit(m') + c logit(m'') + d), where m is the attention on the
    last source word, m' the same one token earlier, and m'' the attention then on the word before
    the last (m' if there is one word). So the end may come with the last word, as for sources that
    end with a full stop, or one token later. The other words share the rest by their scores.

    The decoder's state, which can count tokens, has no part in it. No gradient flows from the end
    into the attention either: attention trained by the end learns to count, and jumps to the
    last word after as many tokens as in training. Initially, P(end) = m.

    Args:
        end: index of the end token.
    """

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end
        self.scale = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, scores: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
        """Replace the score of the end token.

        Args:
            scores: `(batch, width, vocabulary)`.
            weights: attention of the token before the first one (0 if there is none) and of each
                token, `(batch, 1 + width, num_keys)`.
            lengths: number of source words, `(batch,)`.

        Returns:
            log-probabilities of the shape of `scores`, float32 or better.
        """
        weights = exact(weights.detach())
        now, before = weights[:, 1:], weights[:, :-1]
        last = (lengths - 1).view(-1, 1, 1).expand(-1, scores.shape[1], 1)
        rests = (now.gather(2, last), before.gather(2, last), before.gather(2, (last - 1).relu()))
        evidence = torch.cat(rests, dim=2).clamp(_CLEAR, 1 - _CLEAR).logit()
        # Products and a sum, not `@`: autocast would run a matrix product in half precision.
        log_odds = (self.scale * evidence).sum(dim=2, keepdim=True) + self.shift
        end = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
        end[self.end] = True
        others = exact(scores).masked_fill(end, -torch.inf).log_softmax(dim=-1)
        return torch.where(end, F.logsigmoid(log_odds), others + F.logsigmoid(-log_odds))
