"""The same for each of several runs, whatever becomes of the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sut_fairseq.errors import InputError


def each_of(runs: Sequence[Path], do: Callable[[Path], None], done: str) -> None:
    """Do something with each run; one that is refused does not keep the others from it.

    Args:
        runs: their folders.
        do: what; it raises `InputError` for a run with which that cannot be done.
        done: what the runs are afterwards, in a word.

    Raises:
        InputError: once all are tried, if any was refused.
    """
    if len(runs) == 1:
        do(runs[0])
        return
    refused = 0
    for run in runs:
        try:
            do(run)
        except InputError as error:
            print(error, file=sys.stderr, flush=True)
            refused += 1
    if refused:
        raise InputError(f"{refused} of {len(runs)} runs could not be {done}, see above.")
