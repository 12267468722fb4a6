"""Why a checkpoint does not fit the training that is to resume from it, in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sut_fairseq._excepthook import raised_in
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import setting
from sut_fairseq.errors import InputError

_PARAMETERS = re.compile(r"Cannot load model parameters from checkpoint (.+?); please ensure")
_OTHER_KIND = re.compile(r"(Criterion|Optimizer) does not match; please reset the optimizer")
_REPEAT = "repeat the options of its training, or choose another --save-dir"
_SHOWN = 3  # settings


def explained(error: Exception, model: Any) -> InputError | None:
    """The sentence for an error of fairseq's that a checkpoint of other settings causes, if any.

    Args:
        error: raised while fairseq loaded the checkpoint.
        model: the options of the model that is to be trained.
    """
    text = str(error)
    if isinstance(error, InputError) or isinstance(error.__context__, InputError):
        return None
    kind = _OTHER_KIND.match(text)
    if kind is not None:
        return InputError(
            f"the checkpoint was trained with another --{kind[1].lower()}: {_REPEAT}, or give "
            "--reset-optimizer."
        )
    if raised_in(error).startswith("fairseq.optim.lr_scheduler."):
        return InputError(
            f"the checkpoint was trained with another --lr-scheduler: {_REPEAT}, or give "
            "--reset-lr-scheduler."
        )
    named = _PARAMETERS.search(text)
    if named is None:
        return None
    return InputError(
        f"the model in {named[1]} is another one ({_why(error, named[1], model)}): {_REPEAT}."
    )


def _why(error: Exception, path: str, model: Any) -> str:
    """The settings that differ, or what torch says of the first parameter."""
    state = load_checkpoint(path, lazy=True)
    # Options of fairseq's older models come with those of everything else.
    ours = model if isinstance(model, Mapping) else {}
    theirs = {str(name): setting(state, "model", str(name)) for name in ours}
    differing = [
        f"its {'architecture' if name == '_name' else name} is {theirs[name]}, not {value}"
        for name, value in ours.items()
        if None not in (theirs[name], value) and theirs[name] != value
    ]
    if differing:
        return ", ".join(differing[:_SHOWN])
    lines = [line.strip() for line in str(error.__context__).splitlines() if line.strip()]
    return (lines[1] if len(lines) > 1 else "its parameters differ").rstrip(".")
