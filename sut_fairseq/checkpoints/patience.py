"""`--patience` counts on after an interruption; fairseq would count validations from zero again.

fairseq keeps the best result and the number of validations since then as attributes of the function
that decides, and saves neither.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from sut_fairseq.checkpoints.stopping import TRAINING_MODULES

_DECIDES = "should_stop_early"
_ENTRY = "patience"  # of `extra_state`
_KEPT = ("best", "num_runs")  # fairseq's names


def keep_patience(trainer: Any, extra_state: Mapping[str, Any] | None) -> int:
    """Set the count to where it was saved, and have it saved from now on.

    Args:
        trainer: fairseq's, which has loaded a checkpoint if there is one.
        extra_state: what was restored besides parameters and optimizer; None if the best result is
            forgotten.

    Returns:
        for how many validations the result has not improved.
    """
    modules = (sys.modules.get(name) for name in TRAINING_MODULES)
    functions = [f for f in (getattr(one, _DECIDES, None) for one in modules) if f is not None]
    kept = (extra_state or {}).get(_ENTRY) or {}
    for function in functions:
        for name in _KEPT:
            vars(function).pop(name, None)  # of another training in this process
        vars(function).update(kept)
    fairseqs = trainer.save_checkpoint

    @functools.wraps(fairseqs)
    def save_checkpoint(filename: str, extra: dict[str, Any]) -> Any:
        for function in functions:
            state = {name: vars(function)[name] for name in _KEPT if name in vars(function)}
            if state:
                extra = {**extra, _ENTRY: state}
        return fairseqs(filename, extra)

    trainer.save_checkpoint = save_checkpoint
    return int(kept.get("num_runs", 0))
