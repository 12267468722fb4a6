"""Statistics of halting, added up while the depth loop runs."""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.modules.halting.state import HaltingState
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import HaltingStatistics


class Sums:
    """Receives events of the depth loop; this base class adds nothing up."""

    def run(self, tokens: ActiveTokens, state: HaltingState) -> None:
        """These tokens take a step; `state` is the one before it."""

    def stop(self, tokens: ActiveTokens, state: HaltingState, stopped: Tensor, step: int) -> None:
        """Tokens stop after `step` steps where `stopped` `(num_tokens,)` is True."""

    def finish(self, tokens: ActiveTokens, state: HaltingState) -> HaltingStatistics | None:
        """The sums (None if there are none); `state` is the one before these tokens' last step."""
        return None


class HaltingSums(Sums):
    """Adds up `HaltingStatistics`.

    Args:
        num_tokens: number of tokens before the first step.
        num_steps: number of steps of the call.
    """

    def __init__(self, num_tokens: int | Tensor, num_steps: int) -> None:
        self._num_tokens = num_tokens
        self._num_steps = num_steps
        self._steps_run: int | Tensor = 0
        self._expected_depth: Tensor | float = 0.0
        self._remainder: Tensor | float = 0.0

    def run(self, tokens: ActiveTokens, state: HaltingState) -> None:
        # E[depth] is the sum over steps of the probability of reaching them.
        self._steps_run = self._steps_run + tokens.count()
        self._expected_depth = self._expected_depth + _sum(tokens, state.remaining)

    def stop(self, tokens: ActiveTokens, state: HaltingState, stopped: Tensor, step: int) -> None:
        # The mass that a token has left counts on the very last step.
        unused = _sum(tokens, state.remaining * stopped)
        self._expected_depth = self._expected_depth + unused * (self._num_steps - step)
        self._remainder = self._remainder + _sum(tokens, state.remainder * stopped)

    def finish(self, tokens: ActiveTokens, state: HaltingState) -> HaltingStatistics:
        like = state.remaining
        return HaltingStatistics(
            tokens=_tensor(self._num_tokens, like),
            expected_depth=_tensor(self._expected_depth, like),
            steps_run=_tensor(self._steps_run, like),
            steps_possible=_tensor(self._num_tokens * self._num_steps, like),
            remainder=_tensor(self._remainder + _sum(tokens, state.remainder), like),
        )


def _tensor(number: Tensor | float, like: Tensor) -> Tensor:
    # Filling happens on the device; a tensor made from a number would be copied there.
    if isinstance(number, Tensor):
        return number.to(like.dtype)
    return torch.full((), number, dtype=like.dtype, device=like.device)


def _sum(tokens: ActiveTokens, values: Tensor) -> Tensor:
    weights = tokens.weights(values, like=values)
    assert weights is not None
    return weights.sum()
