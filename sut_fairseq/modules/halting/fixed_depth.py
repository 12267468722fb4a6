"""No halting: all tokens take all steps."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor

from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.halting.sums import Sums
from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.tokens import ActiveTokens


class FixedDepthState(NamedTuple):
    """Every token takes every step.

    Attributes:
        remaining: ones, `(num_tokens,)`, float32 or better.
    """

    remaining: Tensor

    @property
    def remainder(self) -> Tensor:
        """Zeros: all mass is meant for the last state, `(num_tokens,)`."""
        return self.remaining.new_zeros(self.remaining.shape)

    def select(self, chosen: Tensor) -> FixedDepthState:
        """The state of the tokens at these places, `(num_chosen,)`."""
        return FixedDepthState(self.remaining[chosen])


class FixedDepth(Halting[FixedDepthState]):
    """Runs every step for every token; the read-out is the last state, h_L."""

    halts: ClassVar[bool] = False
    shows_read_out: ClassVar[bool] = True

    def start(self, hidden: Tensor) -> FixedDepthState:
        one = hidden.new_ones((), dtype=exact_dtype(hidden.dtype))
        return FixedDepthState(one.expand(hidden.shape[0]))

    def advance(self, hidden: Tensor, state: FixedDepthState) -> FixedDepthState:
        return state

    def computed(self, state: FixedDepthState, tokens: ActiveTokens, decoding: bool) -> None:
        return None

    def read_out(self, hidden: Tensor, state: FixedDepthState) -> Tensor:
        return hidden

    def call_weights(self, state: FixedDepthState) -> None:
        return None

    def never_halt(self) -> None:
        """Nothing to do."""

    def sums(self, tokens: ActiveTokens, num_steps: int) -> Sums:
        return Sums()
