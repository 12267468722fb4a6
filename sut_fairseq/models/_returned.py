"""Sizes of what kinds from elsewhere return.

A result of another size would end in a traceback further on or, if it can be broadcast, train a
model that nobody meant.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from sut_fairseq.errors import InputError
from sut_fairseq.modules.attention.distributions.interface import Distribution
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.positions.interface import Scores
from sut_fairseq.modules.block import Block
from sut_fairseq.modules.feedforward import FeedForward

_STATES = (Attention, Block, FeedForward)  # these return states, and the calls of routers


def check_returned(module: nn.Module, axis: str, name: str) -> None:
    """Let each call of a module raise `InputError` if its result has not the size that it must.

    Args:
        module: made by a plugin's builder; of axes without such a rule nothing is checked.
        axis: of the kind.
        name: of the kind.
    """

    def check(called: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        size, tensor, must = _size(called, inputs), result, "a tensor of the size {}"
        if isinstance(called, _STATES):
            tensor = result[0] if isinstance(result, tuple) and len(result) == 2 else None
            must = "a pair of a tensor of the size {} and the calls of its routers or None"
        if not isinstance(tensor, Tensor) or tensor.shape != size:
            raise InputError(
                f"the {axis} kind `{name}` must return {must.format(size)}, but returns "
                f"{_shown(result)}."
            )

    if isinstance(module, (*_STATES, Distribution, Scores)):
        module.register_forward_hook(check)


def _size(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[int, ...]:
    """Of the states or scores that a module must return."""
    if isinstance(module, Scores):
        (pairing,) = inputs
        return (*pairing.queries.shape[:4], pairing.keys.shape[2])
    return tuple(inputs[0].shape)


def _shown(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor of the size {tuple(result.shape)}"
    if isinstance(result, tuple):
        return f"({', '.join(map(_shown, result))})"
    return "None" if result is None else f"a {type(result).__name__}"
