"""Lets a command end in the sentence of an `InputError` instead of a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Any

from sut_fairseq._mistakes import input_error


def show_input_errors_as_sentences() -> None:
    """In a command of fairseq or of this package, show an uncaught `InputError` as text.

    So are the mistakes of users that fairseq reports by other exceptions (`_mistakes`). All else is
    shown as before, and in every other process (a notebook, a user's own program) nothing changes.
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


class _Sentences:
    """An exception hook that passes everything but an `InputError` on to the previous hook."""

    def __init__(self, others: Callable[..., Any]) -> None:
        self._others = others

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        ours = input_error(error)
        if ours is not None:
            sys.stderr.write(f"error: {ours}\n")
        else:
            self._others(kind, error, trace)
