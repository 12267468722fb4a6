"""Why a checkpoint does not fit the training that is to resume from it, in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sut_fairseq._mistakes import raised_by, raised_in
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.checkpoints.settings import setting
from sut_fairseq.errors import InputError

_PARAMETERS = re.compile(r"Cannot load model parameters from checkpoint (.+?); please ensure")
_OTHER_KIND = re.compile(r"(Criterion|Optimizer) does not match; please reset the optimizer")
_REPEAT = "repeat the options of its training, or choose another --save-dir"
_FINE_TUNE = (
    "to train it further, give the --arch of its training and all options of it that decide "
    "shapes; others, such as --dropout, may differ"
)
_SHOWN = 3  # settings
# Settings that decide no shapes, by parts of their names.
_SHAPELESS = re.compile(
    "dropout|top_k|threshold|epsilon|backend|layout|activation|sample|boundary_tokens|beyond_length"
)


def explained(error: Exception, model: Any, *, fine_tunes: bool) -> InputError | None:
    """The sentence for an error of fairseq's that a checkpoint of other settings causes, if any.

    Args:
        error: raised while fairseq loaded the checkpoint.
        model: the options of the model that is to be trained.
        fine_tunes: whether the checkpoint is that of --finetune-from-model.
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
    scheduler = raised_in(error).startswith("fairseq.optim.lr_scheduler.")
    if scheduler and raised_by(error) == "load_state_dict":  # not while it was made
        return InputError(
            f"the checkpoint was trained with another --lr-scheduler: {_REPEAT}, or give "
            "--reset-lr-scheduler."
        )
    named = _PARAMETERS.search(text)
    if named is None:
        return None
    remedy = _FINE_TUNE if fine_tunes else _REPEAT
    return InputError(
        f"the model in {named[1]} is another one ({_why(error, named[1], model)}): {remedy}."
    )


def _why(error: Exception, path: str, model: Any) -> str:
    """The settings that differ and decide shapes, or what torch says of the first parameter."""
    said = str(error.__context__)
    state = load_checkpoint(path, lazy=True)
    # Options of fairseq's older models come with those of everything else.
    ours = model if isinstance(model, Mapping) else {}
    theirs = {str(name): setting(state, "model", str(name)) for name in ours}
    differing = [
        f"its {'architecture' if name == '_name' else name} is {theirs[name]}, not {value}"
        for name, value in ours.items()
        if None not in (theirs[name], value)
        and theirs[name] != value
        and not _SHAPELESS.search(str(name))
        # More layers are more parameters, but those of a depth loop are steps of the same ones.
        and ("key(s) in state_dict" in said or not str(name).endswith("_layers"))
    ]
    if differing:
        return ", ".join(differing[:_SHOWN])
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[1] if len(lines) > 1 else "its parameters differ").rstrip(".")
