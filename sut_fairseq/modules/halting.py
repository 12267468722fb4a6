"""Dynamic halting: when a token has been computed enough."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.arrangement import DistinctRows
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.errors import check


class HaltingState(NamedTuple):
    """What halting remembers of each token; l is the number of steps run so far.

    Attributes:
        log_remaining: log of 1 - sum_{l' < l} a_l', the probability of not having halted before
            step l, `(num_tokens,)`, float32 or better.
        accumulated: sum_{l' < l} a_l' h_l', `(num_tokens, embed_dim)`.
    """

    log_remaining: Tensor
    accumulated: Tensor

    def select(self, chosen: Tensor) -> HaltingState:
        """The state of the tokens at these places, `(num_chosen,)`, all different."""
        return HaltingState(
            DistinctRows.apply(self.log_remaining, chosen),
            DistinctRows.apply(self.accumulated, chosen),
        )


class StickBreakingHalting(nn.Module):
    """Stick-breaking halting (SUT 3.2, Algorithm 1), in log space.

    After step l the unit predicts a^_l = softmax(W_2 dropout(gelu(W_1 h_l + b_1)))_0; a token halts
    at l with probability a_l = a^_l prod_{l' < l} (1 - a^_l') (Eq. 2). W_2 starts at zero, so that
    the first prediction is 0.5.

    Args:
        embed_dim: size of a token's state.
        alpha_threshold: a token stops once sum_{l'} a_l' has reached this value, in (0, 1].
        dropout: dropout of the hidden layer.

    Raises:
        ValueError: if `alpha_threshold` is outside (0, 1].
    """

    def __init__(self, embed_dim: int, *, alpha_threshold: float, dropout: float = 0.0) -> None:
        super().__init__()
        requirement = "greater than 0, at most 1"
        check(0 < alpha_threshold <= 1, "alpha_threshold", requirement, alpha_threshold)
        self.alpha_threshold = alpha_threshold
        self.input = nn.Linear(embed_dim, embed_dim)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(embed_dim, 2, bias=False)
        nn.init.zeros_(self.output.weight)

    def start(self, hidden: Tensor) -> HaltingState:
        """The state before the first prediction, for `hidden` `(num_tokens, embed_dim)`."""
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        return HaltingState(
            log_remaining=torch.zeros(hidden.shape[0], dtype=dtype, device=hidden.device),
            accumulated=torch.zeros_like(hidden),
        )

    def advance(self, hidden: Tensor, state: HaltingState) -> HaltingState:
        """Predict whether tokens halt after the step that gave `hidden` (SUT Eq. 2).

        Args:
            hidden: h_l, `(num_tokens, embed_dim)`.
            state: the state up to a_{l-1}.

        Returns:
            the state that includes a_l.
        """
        scores = self.output(self.dropout(F.gelu(self.input(hidden))))
        log_halt, log_continue = scores.to(state.log_remaining.dtype).log_softmax(-1).unbind(-1)
        halt_probability = (log_halt + state.log_remaining).exp().to(hidden.dtype)
        return HaltingState(
            log_remaining=state.log_remaining + log_continue,
            accumulated=state.accumulated + halt_probability.unsqueeze(-1) * hidden,
        )

    def expected_state(self, hidden: Tensor, state: HaltingState) -> Tensor:
        """Expected halted state s_l (SUT Eq. 3) from h_l and the state up to a_{l-1}."""
        remaining = state.log_remaining.exp().to(hidden.dtype)
        return remaining.unsqueeze(-1) * hidden + state.accumulated

    def halted(self, state: HaltingState) -> Tensor:
        """Which tokens have reached the threshold, `(num_tokens,)`, bool."""
        return -torch.expm1(state.log_remaining) >= self.alpha_threshold

    def extra_repr(self) -> str:
        return f"alpha_threshold={self.alpha_threshold}"
