"""Stick-breaking halting (SUT 3.2, Algorithm 1, Eq. 2-3)."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.errors import check
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.tokens import ActiveTokens


class StickBreakingState(NamedTuple):
    """What stick-breaking remembers of each token; l is the coming step.

    Attributes:
        log_remaining: log of 1 - sum_{l' < l} a_l', the probability of not having halted before
            step l, `(num_tokens,)`, float32 or better.
        remaining: that probability itself, `(num_tokens,)`.
        accumulated: sum_{l' < l} a_l' h_l', `(num_tokens, embed_dim)`, float32 or better.
    """

    log_remaining: Tensor
    remaining: Tensor
    accumulated: Tensor

    @property
    def remainder(self) -> Tensor:
        """The mass left for the last step, `(num_tokens,)`."""
        return self.remaining

    def select(self, chosen: Tensor) -> StickBreakingState:
        """The state of the tokens at these places, `(num_chosen,)`, all different."""
        return StickBreakingState(*(values.index_select(0, chosen) for values in self))


class StickBreakingHalting(Halting[StickBreakingState]):
    """Stick-breaking halting (SUT 3.2, Algorithm 1), in log space.

    After step l the unit predicts a^_l = softmax(W_2 dropout(gelu(W_1 h_l + b_1)))_0; a token halts
    at l with probability a_l = a^_l prod_{l' < l} (1 - a^_l') (Eq. 2). W_2 starts at zero, so that
    the first prediction is 0.5. A token that has halted is no longer computed; others attend to
    expected states, which no longer change.

    Args:
        embed_dim: size of a token's state.
        alpha_threshold: a token stops once sum_{l'} a_l' has reached this value, in (0, 1].
        dropout: dropout of the hidden layer.

    Raises:
        InputError: if `alpha_threshold` is outside (0, 1].
    """

    alpha_threshold: float
    shows_read_out: ClassVar[bool] = True

    def __init__(self, embed_dim: int, *, alpha_threshold: float, dropout: float = 0.0) -> None:
        super().__init__()
        requirement = "greater than 0, at most 1"
        check(0 < alpha_threshold <= 1, "alpha_threshold", requirement, alpha_threshold)
        self.alpha_threshold = alpha_threshold
        self.input = nn.Linear(embed_dim, embed_dim)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(embed_dim, 2, bias=False)
        nn.init.zeros_(self.output.weight)

    def start(self, hidden: Tensor) -> StickBreakingState:
        nothing = torch.zeros_like(hidden, dtype=exact_dtype(hidden.dtype))
        log_remaining = nothing.new_zeros(hidden.shape[0])
        return StickBreakingState(log_remaining, log_remaining.exp(), nothing)

    def advance(self, hidden: Tensor, state: StickBreakingState) -> StickBreakingState:
        """Predict whether tokens halt after the step that gave `hidden` (SUT Eq. 2)."""
        scores = self.output(self.dropout(F.gelu(self.input(hidden))))
        # On a CPU, log_softmax along a short last axis takes ten times as long.
        scores = scores.to(state.log_remaining.dtype).t().contiguous()
        log_halt, log_continue = scores.log_softmax(dim=0)
        halt_probability = (log_halt + state.log_remaining).exp()
        log_remaining = state.log_remaining + log_continue
        return StickBreakingState(
            log_remaining=log_remaining,
            remaining=log_remaining.exp(),
            accumulated=state.accumulated + halt_probability.unsqueeze(-1) * hidden,
        )

    def read_out(self, hidden: Tensor, state: StickBreakingState) -> Tensor:
        """Expected halted state s_l (SUT Eq. 3) from h_l and the state up to a_{l-1}."""
        expected = state.remaining.unsqueeze(-1) * hidden + state.accumulated
        return expected.to(hidden.dtype)

    def halted(self, state: StickBreakingState) -> Tensor:
        """Which tokens have reached the threshold, `(num_tokens,)`, bool."""
        return -torch.expm1(state.log_remaining) >= self.alpha_threshold

    def computed(self, state: StickBreakingState, tokens: ActiveTokens, decoding: bool) -> Tensor:
        return ~self.halted(state)

    def call_weights(self, state: StickBreakingState) -> Tensor:
        """The probability of not having halted; in the paper every call counts alike (SUT 3.1)."""
        return state.remaining

    def never_halt(self) -> None:
        self.alpha_threshold = math.inf

    def extra_repr(self) -> str:
        return f"alpha_threshold={self.alpha_threshold}"
