"""Lets a command end in the sentence of an `InputError` instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Any

from sut_fairseq.errors import InputError


def show_input_errors_as_sentences() -> None:
    """In a command of fairseq or of this package, show an `InputError` that nobody caught as text.

    Called where fairseq begins to use one of our architectures, models, tasks or criterions. Every
    other exception is shown as before, and in every other process (a notebook, somebody's own
    program) nothing changes.
    """
    program = sys.argv[0] if sys.argv else ""
    if _is_command(program) and not isinstance(sys.excepthook, _Sentences):
        sys.excepthook = _Sentences(sys.excepthook)


def _is_command(program: str) -> bool:
    """Whether a program is `fairseq-train`, `fairseq_cli/train.py`, `sut-macs` or the like."""
    path = PurePath(program)
    return path.name.startswith(("fairseq-", "sut-")) or path.parent.name == "fairseq_cli"


class _Sentences:
    """An exception hook; hands what is no `InputError` to the hook that was there before."""

    def __init__(self, others: Callable[..., Any]) -> None:
        self._others = others

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, InputError):
            sys.stderr.write(f"error: {error}\n")
        else:
            self._others(kind, error, trace)
