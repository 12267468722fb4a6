"""The part of a halting kind's state that the depth loop and its observers may read."""

from __future__ import annotations

from typing import Protocol, Self

from torch import Tensor


class HaltingState(Protocol):
    """What halting remembers of each token between steps.

    Attributes:
        remaining: probability of reaching the coming step, `(num_tokens,)`, float32 or better.
        remainder: the mass that would go to the last state without having been predicted for it,
            if the loop ended with the coming step, `(num_tokens,)`.
    """

    @property
    def remaining(self) -> Tensor: ...

    @property
    def remainder(self) -> Tensor: ...

    def select(self, chosen: Tensor) -> Self:
        """The state of the tokens at these places, `(num_chosen,)`, all different."""
        ...
