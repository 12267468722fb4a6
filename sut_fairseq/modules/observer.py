"""Observers: they are told what a model computes, without changing it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from sut_fairseq.modules.halting.state import HaltingState
from sut_fairseq.modules.tokens import ActiveTokens

# Takes the name of an intermediate result and its values, see `Observer.saw`.
Look = Callable[[str, Tensor], None]


class Observer:
    """Is told what one depth loop computes; a subclass overrides the methods it needs.

    Calls for each step: `halting`, then `step` unless no token takes it, then `saw` for every
    intermediate result. An observed model computes the same as ever, though attention cannot be
    fused then. Under activation checkpointing only `halting` is called, since the backward pass
    would repeat the other calls.

    Attributes:
        looks_inside: whether `saw` is called; if not, attention stays fused.
    """

    looks_inside: bool = True

    def halting(self, tokens: ActiveTokens, state: HaltingState) -> None:
        """The halting state before the coming step, of the tokens that took the last one."""

    def step(self, step: int, tokens: ActiveTokens) -> None:
        """These tokens take the step, counted from 0."""

    def saw(self, name: str, values: Tensor) -> None:
        """An intermediate result of the active tokens.

        Args:
            name: "self_attention" or "cross_attention", a dot and "weights"
                `(num_tokens, num_heads, top_k, num_keys)`, before dropout; these or "feed_forward",
                a dot and "expert_indices" or "expert_weights" `(num_tokens, top_k)`; "gate"
                `(num_tokens, embed_dim)`; "cross_attention", a dot and a component of location
                attention: "blocks" `(num_tokens, num_heads, 3)`, "centre", "spread" and
                "location_share" `(num_tokens, num_heads)`, "location" and "content"
                `(num_tokens, num_heads, num_keys)`; or a name that another kind uses.
            values: detached or not; the first axis is that of the tokens.
        """


def within(look: Look | None, name: str) -> Look | None:
    """The `look` for a submodule called `name`: it prefixes the names of results."""
    if look is None:
        return None
    return lambda inner, values: look(f"{name}.{inner}", values)
