"""Copies of a model that share its weights."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar

from fairseq.data import Dictionary
from torch import nn

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
