"""Signals that tell a training to stop, and the exit status that it then has."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from types import FrameType

# "Temporary failure, try again" in sysexits.h: it stopped and saved; the same command resumes it.
UNFINISHED = 75

# From Slurm before it ends a job, from other programs that ask politely, and from Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interruption:
    """Whether this process was told to stop.

    Attributes:
        asked: the signal that told it to; None until then.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None

    def listen(self) -> None:
        """Note SIGTERM, SIGUSR1 and SIGINT from now on, unless other code handles them.

        A second SIGINT ends the process at once. Only the main thread may do this; elsewhere
        nothing changes.
        """
        _handle(self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number)
        sentence = f"{self.asked.name}: when the update is finished and saved, this training ends "
        sentence += f"with status {UNFINISHED} (if it was the last one, with 0)"
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            sentence += "; Ctrl-C again ends it at once"
        # Not through Python's buffers, which the signal may have found half-written.
        os.write(2, f"\n{sentence}.\n".encode())


def pass_on_signals() -> None:
    """Pass signals on to the processes that this one will start, and outlive them.

    Until one is started, signals have their usual effect.
    """
    _handle(_pass_on)


def _pass_on(number: int, frame: FrameType | None) -> None:
    # Children that got the signal first may all have ended by now: `active_children` does not list
    # them, and forgets them. Then this process is about to end by itself.
    started = bool(getattr(multiprocessing.process, "_children", ()))
    children = multiprocessing.active_children()
    if not started or number == signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
    if not started:
        os.kill(os.getpid(), number)
    for child in children:
        # A child may end at this very moment. An error here would surface in multiprocessing, which
        # would mistake it for one of its own and lose the exit status of the child.
        with suppress(ProcessLookupError):
            # A terminal sends Ctrl-C to all processes; a second SIGINT would end them at once.
            os.kill(child.pid or 0, signal.SIGTERM if number == signal.SIGINT else number)


def _handle(handler: signal._HANDLER) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler, _pass_on):
            signal.signal(number, handler)
