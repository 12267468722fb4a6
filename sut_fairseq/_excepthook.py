"""Lets a command end in the sentence of an `InputError` instead of a traceback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Any

from sut_fairseq.errors import InputError

# From torch's message on unexpected parameters of a model.
_UNKNOWN_WORDS = re.compile(r"Unexpected key\(s\)[^\n]*\bwords\.\w+\._extra_state")
# fairseq's messages.
_NO_CHECKPOINT = re.compile(r"Model file not found: (.*)")
_NO_SET = re.compile(r"Dataset not found: (.*) \((.*)\)")
_BUCKETS = re.compile(r"percentile\(\) got an unexpected keyword argument 'interpolation'")
_TOO_LONG = re.compile(r"Sentences lengths should not exceed max_tokens=(\d+)")

NO_BUCKETS = (
    "--num-batch-buckets pads sentences for TPUs, on which these models do not run: leave it out."
)


def show_input_errors_as_sentences() -> None:
    """In a command of fairseq or of this package, show an uncaught `InputError` as text.

    So is a path that fairseq does not find. Every other exception is shown as before, and in every
    other process (a notebook, a user's own program) nothing changes.
    """
    if is_command() and not isinstance(sys.excepthook, _Sentences):
        sys.excepthook = _Sentences(sys.excepthook)
        if "hydra" in program().name:
            # Hydra prints tracebacks itself, unless it is told to leave them to Python.
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def program() -> PurePath:
    """Path of the program that runs, as it was called; `sys.argv` may be empty."""
    return PurePath(sys.argv[0] if sys.argv else "")


def is_command() -> bool:
    """Whether this program is `fairseq-train`, `fairseq_cli/train.py`, `sut-macs` or the like."""
    path = program()
    return path.name.startswith(("fairseq-", "sut-")) or path.parent.name == "fairseq_cli"


def is_training() -> bool:
    """Whether this program is `fairseq-train`, `fairseq_cli/train.py` or fairseq-hydra-train."""
    name = program().name
    return is_command() and "train" in name and not name.startswith("sut-")


def is_hydra() -> bool:
    """Whether this program is fairseq-hydra-train."""
    return program().name in ("fairseq-hydra-train", "hydra_train.py")


def divergence(reason: str) -> InputError | None:
    """The `InputError` for the text of a `FloatingPointError` from fairseq's trainer, if any.

    The trainer raises it if gradients are not finite, after the log has named the first modules
    that made them so, but also if gradients differ between workers. If these are finite, the
    result is None, since fairseq's own message says what to try.
    """
    if "inconsistent between workers" in reason:
        if not re.search(r"= *-?(nan|inf)", reason):
            return None
        reason = "gradients are Nan/Inf"
    return InputError(
        f"the training diverged ({reason}): give --clip-norm 1 or a lower --lr, and go on from "
        "checkpoint_last.pt or an earlier checkpoint, not from crash.pt; or start again with more "
        "--warmup-updates."
    )


class _Sentences:
    """An exception hook that passes everything but an `InputError` on to the previous hook."""

    def __init__(self, others: Callable[..., Any]) -> None:
        self._others = others

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        ours = _input_error(error)
        if ours is not None:
            sys.stderr.write(f"error: {ours}\n")
        else:
            self._others(kind, error, trace)


def _input_error(error: BaseException) -> InputError | None:
    """The `InputError` that an exception is or stands for.

    fairseq's trainer replaces an `InputError` by an exception of its own: it reports any problem
    with a checkpoint's parameters as "please ensure that the architectures match". And torch does
    not know that the tasks of this package give fairseq's models their words.
    """
    if isinstance(error, InputError):
        return error
    if isinstance(error, RuntimeError) and _UNKNOWN_WORDS.search(str(error)):
        return InputError(
            "this model was trained with a task of this package: name it with --task here too."
        )
    if raised_in(error).partition(".")[0] not in ("fairseq", "fairseq_cli"):
        return None
    if too_long := _TOO_LONG.match(str(error)):
        return InputError(
            f"a sentence has more tokens than the {too_long[1]} that --max-tokens allows in a "
            "batch: give at least as many as the longest sentence has."
        )
    if isinstance(error, TypeError) and _BUCKETS.match(str(error)):
        return InputError(NO_BUCKETS)
    if isinstance(error, FloatingPointError):
        return divergence(str(error))
    if missing := _missing(error):
        return missing
    context = error.__context__
    return context if isinstance(context, InputError) else None


def _missing(error: BaseException) -> InputError | None:
    """The `InputError` for what fairseq raises if a folder, a set or a checkpoint is not there."""
    reason = str(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return InputError(f"there is no `{error.filename}`: check the path.")
    if isinstance(error, OSError) and (match := _NO_CHECKPOINT.fullmatch(reason)):
        return InputError(f"there is no checkpoint `{match[1]}`: check its path.")
    if isinstance(error, OSError) and (match := _NO_SET.fullmatch(reason)):
        return InputError(f"there is no set `{match[1]}` in `{match[2]}`: check both names.")
    if "Could not infer language pair" in reason:
        return InputError(
            "the data folder has no set of a language pair: name the folder that sut-prepare or "
            "fairseq-preprocess made, such as data-bin/mine."
        )
    return None


def raised_in(error: BaseException) -> str:
    """The module that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
