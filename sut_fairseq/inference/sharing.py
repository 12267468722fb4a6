"""Copies of a model that share its weights."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar

from fairseq.data import Dictionary
from torch import nn

_Model = TypeVar("_Model", bound=nn.Module)


def sharing_weights(model: _Model) -> _Model:
    """A copy of a model with the same parameters and buffers, not equal ones.

    It takes milliseconds and no memory to speak of, and has thresholds, modes and hooks of its own,
    so that several threads can run a model in several ways at once. Whoever changes a weight
    (`copy.to(device)` does) changes it for all.
    """
    shared = chain(model.parameters(), model.buffers())
    memo = {id(one): one for one in shared}
    for module in model.modules():
        found = (one for one in vars(module).values() if isinstance(one, Dictionary))
        memo.update((id(one), one) for one in found)
    return copy.deepcopy(model, memo)
