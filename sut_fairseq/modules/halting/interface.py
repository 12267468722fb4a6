"""Interface of the halting kinds: when a token stops, and what is read out of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from sut_fairseq.modules.halting.state import HaltingState
from sut_fairseq.modules.halting.sums import HaltingSums, Sums
from sut_fairseq.modules.tokens import ActiveTokens

State = TypeVar("State", bound=HaltingState)


class Halting(nn.Module, ABC, Generic[State]):
    """Base of the halting kinds.

    The depth loop calls `start`, then for each step: `advance` and `computed` (not before the
    first), `call_weights`, the block, and `read_out`. Only the loop knows the number of steps,
    which may differ from call to call; `sums` is told that of each call.

    The expected depth that is logged, and its loss, come from the `remaining` of the states, which
    must be a probability; a kind without one has `sums` of its own.

    Attributes:
        alpha_threshold: the value at which a token stops, by which users trade accuracy for
            computation after training; None: the kind has no such value.
        halts: whether tokens can stop before the last step.
        shows_read_out: whether others attend to the read-out of a token (stick-breaking: its
            expected state); False: to its newest state.
        predicts_first_step: whether `start` or the first step already uses the unit's parameters.
    """

    alpha_threshold: float | None = None
    halts: ClassVar[bool] = True
    shows_read_out: ClassVar[bool]
    predicts_first_step: ClassVar[bool] = False

    @abstractmethod
    def start(self, hidden: Tensor) -> State:
        """The state before the first step, for its inputs `(num_tokens, embed_dim)`."""

    @abstractmethod
    def advance(self, hidden: Tensor, state: State) -> State:
        """The state before the coming step.

        Args:
            hidden: h_l, states after the last step, `(num_tokens, embed_dim)`.
            state: the state before the last step.
        """

    @abstractmethod
    def computed(self, state: State, tokens: ActiveTokens, decoding: bool) -> Tensor | None:
        """Which tokens take the coming step, `(num_tokens,)`, bool; the others stop for good.

        None means all.

        Args:
            state: the state before that step.
            tokens: where the tokens stand.
            decoding: whether later tokens may attend to these ones.
        """

    @abstractmethod
    def read_out(self, hidden: Tensor, state: State) -> Tensor:
        """The result of each token if the loop ended here, `(num_tokens, embed_dim)`.

        Args:
            hidden: h_l, states after a step, `(num_tokens, embed_dim)`.
            state: the state before that step.
        """

    @abstractmethod
    def call_weights(self, state: State) -> Tensor | None:
        """Weight of each token in the routing statistics of the coming step, `(num_tokens,)`.

        None means 1.
        """

    @abstractmethod
    def never_halt(self) -> None:
        """Make all tokens take all steps from now on: an untrained unit says nothing about cost."""

    def sums(self, tokens: ActiveTokens, num_steps: int) -> Sums:
        """Accumulates the statistics of one call, for `tokens` and at most `num_steps` steps."""
        return HaltingSums(tokens.count(), num_steps)
