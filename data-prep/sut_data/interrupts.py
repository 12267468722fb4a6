"""Ctrl-C ends a command with one line and status 130, whatever it was doing."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import FrameType

INTERRUPTED = 130  # 128 + the number of the signal, as shells count


def end_when_interrupted() -> None:
    """Until `interruptible` begins, end a `sut-...` command at once when it is interrupted.

    It does nothing in other programs. Importing torch and fairseq takes seconds, in which there is
    nothing to tidy up, and a `KeyboardInterrupt` would show the traceback of some library.
    """
    program = PurePath(sys.argv[0] if sys.argv else "").name
    if program.startswith("sut-") and _raises_now():
        signal.signal(signal.SIGINT, _end)
        # Python resets the signal when it exits, so Ctrl-C would kill a process that is done.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise `KeyboardInterrupt` in the block, so that it can tidy up."""
    before = signal.getsignal(signal.SIGINT)
    if before is not _end:
        yield
        return
    unraisablehook = sys.unraisablehook
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _interrupt_again
    try:
        yield
    finally:
        sys.unraisablehook = unraisablehook
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_when_interrupted() -> Iterator[None]:
    """As before `interruptible` began: for imports that take seconds in the midst of a command."""
    before = signal.getsignal(signal.SIGINT)
    end_when_interrupted()
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and Slurm's warning (SIGUSR1) until the end of the block.

    Python drops an exception that a signal handler raises while after-fork hooks run.
    """
    came: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for caught, before in handlers.items():
            signal.signal(caught, before)
    for caught, frame in came:
        handlers[caught](caught, frame)


def _raises_now() -> bool:
    """Whether Ctrl-C raises `KeyboardInterrupt`; in a background job of a shell it does nothing."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Interrupt again after a finalizer, within which Python drops a `KeyboardInterrupt`."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Thread(target=_interrupt_after_the_hook, daemon=True).start()
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_after_the_hook() -> None:
    """Interrupt the main thread once it has left the hook, which drops exceptions, too."""
    main = threading.main_thread().ident
    assert main is not None

    def in_hook() -> bool:
        frame = sys._current_frames().get(main)
        while frame is not None and frame.f_code is not _interrupt_again.__code__:
            frame = frame.f_back
        return frame is not None

    while in_hook():
        time.sleep(0.001)
    signal.pthread_kill(main, signal.SIGINT)


def _end(number: int, frame: FrameType | None) -> None:
    # No print: the interrupted code may be writing to the same stream.
    os.write(2, f"{PurePath(sys.argv[0]).name}: interrupted.\n".encode())
    os._exit(INTERRUPTED)
