"""One call of the depth loop: which tokens still run, and their halting state."""

from __future__ import annotations

from typing import Generic

from torch import Tensor

from sut_fairseq.modules.halting.interface import Halting, State
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import HaltingStatistics


class Course(Generic[State]):
    """Follows the tokens of one call of the depth loop until they halt.

    Args:
        halting: the kind.
        hidden: inputs of the first step, `(num_tokens, embed_dim)`.
        tokens: the tokens they belong to.
        num_steps: number of steps of the call.
        decoding: whether later tokens may attend to these ones.
        observer: is told the halting state before each step.

    Attributes:
        tokens: the tokens that take the coming step.
        state: their halting state before it.
    """

    def __init__(
        self,
        halting: Halting[State],
        hidden: Tensor,
        tokens: ActiveTokens,
        num_steps: int,
        *,
        decoding: bool,
        observer: Observer | None,
    ) -> None:
        self._halting = halting
        self._decoding = decoding
        self._observer = observer
        self._sums = halting.sums(tokens, num_steps)
        self.tokens = tokens
        self.state = halting.start(hidden)

    def advance(self, step: int, hidden: Tensor) -> Tensor:
        """Select the tokens that take step `step` (from 0): their h, `(num_tokens, embed_dim)`.

        Args:
            hidden: h after the last step, of the tokens that took it.
        """
        if step > 0:
            self.state = self._halting.advance(hidden, self.state)
        if self._observer is not None:
            self._observer.halting(self.tokens, self.state)
        running = None
        if step > 0:
            running = self._halting.computed(self.state, self.tokens, self._decoding)
        if running is None:
            return hidden
        self._sums.stop(self.tokens, self.state, ~running, step)
        self.tokens, places = self.tokens.keep(running)
        if places is None:
            return hidden
        self.state = self.state.select(places)
        return hidden.index_select(0, places)

    def run(self, hidden: Tensor) -> Tensor | None:
        """Count the coming step, and weigh its tokens.

        Args:
            hidden: h of these tokens, `(num_tokens, embed_dim)`; only its dtype is read.

        Returns:
            the weight of each token in routing statistics, `(num_tokens,)`; None means 1.
        """
        self._sums.run(self.tokens, self.state)
        return self.tokens.weights(self._halting.call_weights(self.state), hidden)

    def finish(self) -> HaltingStatistics | None:
        """The statistics after the last step; None from a kind that never halts."""
        return self._sums.finish(self.tokens, self.state)
