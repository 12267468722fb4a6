"""What a terminal shows while uncountable work goes on, and how long the work took."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePath

from tqdm import tqdm

QUIET = 1.0  # seconds; shorter work is not shown


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal what is being done and for how long; show nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        if done.wait(QUIET):
            return
        with tqdm(desc=what, bar_format="{desc}: {elapsed}", leave=False) as line:
            line.start_t -= QUIET
            while not done.wait(0.5):
                line.refresh()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def loading() -> ExitStack:
    """In a `sut-...` command, show that it is loading until this is closed; else do nothing.

    Importing torch and fairseq takes seconds.
    """
    shown = ExitStack()
    if PurePath(sys.argv[0] if sys.argv else "").name.startswith("sut-"):
        shown.enter_context(waiting("loading"))
    return shown


class Stopwatch:
    """Says how long a command took, in its last line of output."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __str__(self) -> str:
        seconds = time.monotonic() - self._start
        if seconds < 60:
            return f"{seconds:.1f} s"
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def about(seconds: float) -> str:
    """Return a duration in a suitable unit, rounded."""
    for unit, length, most in (("s", 1, 90), ("min", 60, 90), ("hours", 3600, 48)):
        if seconds < most * length:
            number = seconds / length
            return f"{number:.1f} {unit}" if unit == "hours" else f"{number:.0f} {unit}"
    return f"{seconds / 86_400:.1f} days"
