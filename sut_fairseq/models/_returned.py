"""Sizes of what kinds from elsewhere return.

A result of another size would end in a traceback further on or, if it can be broadcast, train a
model that nobody meant.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from sut_fairseq.errors import InputError
from sut_fairseq.modules.attention.distributions.interface import Distribution
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.positions.interface import Scores
from sut_fairseq.modules.block import Block, BlockOutput
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.statistics import RouterCalls

# The first argument of a call, which says what size the result has.
_FIRST = {
    Attention: "states",
    FeedForward: "states",
    Block: "hidden",
    Distribution: "scores",
    Scores: "pairing",
}


def check_returned(module: nn.Module, axis: str, name: str) -> None:
    """Let each call of a module raise `InputError` if its result has not the size that it must.

    Args:
        module: made by a plugin's builder; of axes without such a rule nothing is checked.
        axis: of the kind.
        name: of the kind.
    """
    hooks = module._forward_hooks.values()
    known = any(isinstance(hook, partial) and hook.func is _check for hook in hooks)
    if isinstance(module, tuple(_FIRST)) and not known:
        # A function of this module, not a closure: models can be pickled.
        module.register_forward_hook(partial(_check, axis, name), with_kwargs=True)


def _check(
    axis: str,
    name: str,
    module: nn.Module,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
    result: Any,
) -> None:
    size, tensor, must = _size(module, inputs, named), result, "a tensor of the size {}"
    if isinstance(module, Block):
        must = "a `BlockOutput` of a tensor of the size {} and a dict of its routers' calls"
        fits = isinstance(result, BlockOutput) and isinstance(result.routing, dict)
        tensor = result[0] if fits else None
    elif isinstance(module, (Attention, FeedForward)):
        must = "a pair of a tensor of the size {} and its router's `RouterCalls` or None"
        fits = isinstance(result, (tuple, list)) and len(result) == 2
        fits = fits and (result[1] is None or isinstance(result[1], RouterCalls))
        tensor = result[0] if fits else None
    if not isinstance(tensor, Tensor) or tensor.shape != size:
        raise InputError(
            f"the {axis} kind `{name}` must return {must.format(size)}, but returns "
            f"{_shown(result)}."
        )


def _size(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[int, ...]:
    """Of the states or scores that a module must return."""
    first = next(name for base, name in _FIRST.items() if isinstance(module, base))
    given = inputs[0] if inputs else named[first]
    if isinstance(module, Scores):
        return (*given.queries.shape[:4], given.keys.shape[2])
    return tuple(given.shape)


def _shown(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor of the size {tuple(result.shape)}"
    if type(result) is tuple:
        return f"({', '.join(map(_shown, result))})"
    if isinstance(result, BlockOutput):
        return f"a `BlockOutput` of {_shown(result.hidden)} and {_shown(result.routing)}"
    return "None" if result is None else f"a {type(result).__name__}"
