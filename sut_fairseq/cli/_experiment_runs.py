"""Do the same with each of several runs, even if some of them are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sut_fairseq.errors import InputError


def each_of(runs: Sequence[Path], do: Callable[[Path], None], done: str) -> None:
    """Call `do` for each run; the others are still processed if one is refused.

    Args:
        runs: their folders.
        do: processes a run; raises `InputError` to refuse it.
        done: word for the error message, such as `evaluated`.

    Raises:
        InputError: once all have been tried, if any was refused.
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
