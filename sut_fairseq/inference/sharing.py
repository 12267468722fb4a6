"""Copies of a model that share its weights."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any, NoReturn, Self, TypeVar

from fairseq.data import Dictionary
from torch import nn

from sut_fairseq.errors import InputError

_Model = TypeVar("_Model", bound=nn.Module)


def sharing_weights(model: _Model) -> _Model:
    """A copy of a model that shares its parameters and buffers.

    It takes milliseconds and almost no memory, and has its own thresholds, modes and hooks, so that
    several threads can run a model in different ways at once. A change to a weight (as by
    `copy.to(device)`) affects all copies.
    """
    shared = chain(model.parameters(), model.buffers())
    memo = {id(one): one for one in shared}
    for module in model.modules():
        found = (one for one in vars(module).values() if isinstance(one, Dictionary))
        memo.update((id(one), one) for one in found)
    return copy.deepcopy(model, memo)


class NotPickled:
    """Base of a class with a `model` beside objects of fairseq, which cannot be copied or pickled.

    A deep copy has a model of its own and shares the rest, which does not change.
    """

    model: Any

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = copy.copy(self)
        copied.model = copy.deepcopy(self.model, memo)
        return copied

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise InputError(
            f"a {name} cannot be pickled, nor sent to another process: let each process load its "
            f"own. To save weights, save the state_dict of its attribute `model`."
        )
