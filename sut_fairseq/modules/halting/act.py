"""Adaptive computation time (ACT), as in Graves (2016) and as in Dehghani et al. (2019).

Either way a token has a read-out step T, the first at which its predictions add up to 1 - epsilon,
and is still computed after it: others attend to its newest state, not to its result. A sentence
stops only once all of its tokens have been read out (NDR App. A).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check
from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.precision import exact_dtype
from sut_fairseq.modules.tokens import ActiveTokens


class ActState(NamedTuple):
    """What ACT remembers of each token before step t; masses are `(num_tokens,)`.

    Attributes:
        remaining: 1 - sum_{t' < t} p(t'), exactly 0 from step T + 1 on, float32 or better.
        weight: weight of h(t) in the result, as known before the step.
        accumulated: the result so far, `(num_tokens, embed_dim)`, float32 or better.
        remainder: R, if the loop ended with step t.
    """

    remaining: Tensor
    weight: Tensor
    accumulated: Tensor
    remainder: Tensor

    def select(self, chosen: Tensor) -> ActState:
        """The state of the tokens at these places, `(num_chosen,)`, all different."""
        return ActState(*(values.index_select(0, chosen) for values in self))


class AdaptiveComputationTime(Halting[ActState]):
    """The prediction and the stopping rule, which both variants share.

    Args:
        embed_dim: size of a token's state.
        epsilon: greatest mass that may be left when a token stops, in (0, 1).

    Raises:
        InputError: if `epsilon` is outside (0, 1).
    """

    shows_read_out: ClassVar[bool] = False

    def __init__(self, embed_dim: int, *, epsilon: float = 0.01) -> None:
        super().__init__()
        check(0 < epsilon < 1, "halting_epsilon", "greater than 0, less than 1", epsilon)
        self.epsilon = epsilon
        self.output = nn.Linear(embed_dim, 1)

    def share(self, hidden: Tensor, remaining: Tensor) -> Tensor:
        """The part p of the remaining mass that a step takes (NDR Eq. 11-14), `(num_tokens,)`.

        p^ = sigmoid(W h + b), but all that remains where no more than epsilon would be left.
        """
        prediction = self.output(hidden).squeeze(-1).to(remaining.dtype).sigmoid()
        return torch.where(remaining - prediction > self.epsilon, prediction, remaining)

    def computed(self, state: ActState, tokens: ActiveTokens, decoding: bool) -> Tensor | None:
        if decoding:
            # A later token may need more steps, and attends to this one at each of them.
            return None
        return tokens.any_in_sentence(state.remaining > 0)

    def call_weights(self, state: ActState) -> None:
        """None: a state counts fully, read out or not, because others attend to it."""
        return None

    def never_halt(self) -> None:
        nn.init.constant_(self.output.bias, -torch.inf)  # a prediction of exactly 0

    def extra_repr(self) -> str:
        return f"epsilon={self.epsilon}"


class GravesHalting(AdaptiveComputationTime):
    """ACT of Graves (2016), "A" of the Neural Data Router (NDR Eq. 11-15).

    p^(t) is predicted from h(t), after step t. The result is sum_{t <= T} p(t) h(t), where
    p(t) = p^(t) for t < T and p(T) = R = 1 - sum_{t < T} p^(t), also if T is the last step of all.
    """

    def start(self, hidden: Tensor) -> ActState:
        nothing = torch.zeros_like(hidden, dtype=exact_dtype(hidden.dtype))
        everything = nothing.new_ones(hidden.shape[0])
        return ActState(everything, everything, nothing, everything)

    def advance(self, hidden: Tensor, state: ActState) -> ActState:
        share = self.share(hidden, state.remaining)
        remaining = state.remaining - share
        return ActState(
            remaining=remaining,
            weight=remaining,
            accumulated=state.accumulated + share.unsqueeze(-1) * hidden,
            remainder=torch.where(remaining > 0, remaining, state.remainder),
        )

    def read_out(self, hidden: Tensor, state: ActState) -> Tensor:
        """sum_{t' < t} p(t') h(t') + p(t) h(t), where p(t) is all that remains (NDR Eq. 15)."""
        result = state.accumulated + state.weight.unsqueeze(-1) * hidden
        return result.to(hidden.dtype)


class DehghaniHalting(AdaptiveComputationTime):
    """ACT of the Universal Transformer (Dehghani et al. 2019, listings 1 and 2), "U" of NDR.

    p^(t) is predicted from h(t - 1), before step t; the weights w are p(t) as above, but a token
    that has not stopped by itself by the last step gives that step its prediction only, and
    has no remainder. The result is interpolated: o <- (1 - w) o + w h, from o = 0.
    """

    predicts_first_step: ClassVar[bool] = True

    def start(self, hidden: Tensor) -> ActState:
        result = torch.zeros_like(hidden, dtype=exact_dtype(hidden.dtype))
        everything = result.new_ones(hidden.shape[0])
        return self._before_step(hidden, everything, result, torch.zeros_like(everything))

    def advance(self, hidden: Tensor, state: ActState) -> ActState:
        remaining = state.remaining - state.weight
        result = self._interpolated(hidden, state)
        return self._before_step(hidden, remaining, result, state.remainder)

    def read_out(self, hidden: Tensor, state: ActState) -> Tensor:
        return self._interpolated(hidden, state).to(hidden.dtype)

    def _interpolated(self, hidden: Tensor, state: ActState) -> Tensor:
        old = state.accumulated
        return torch.lerp(old, hidden.to(old.dtype), state.weight.unsqueeze(-1))

    def _before_step(
        self, hidden: Tensor, remaining: Tensor, result: Tensor, remainder: Tensor
    ) -> ActState:
        weight = self.share(hidden, remaining)
        stops = weight == remaining  # again, with weight 0, if it has stopped before
        remainder = remainder + torch.where(stops, remaining, 0.0)
        return ActState(remaining, weight, result, remainder)
