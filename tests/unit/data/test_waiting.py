"""What a terminal is shown while something takes long, and that a pipe is shown nothing."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
import time

import pytest

from sut_data import waiting
from sut_data.waiting import Stopwatch


def shown(monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    """What appears on a terminal during a wait, of at most so many seconds."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with waiting.waiting("doing it"):
            if seconds:
                select.select([ours], [], [], seconds)  # until something is there to see
        terminal.flush()
        text = b""
        # A pseudo-terminal passes on what was written a little later.
        while select.select([ours], [], [], 0.5)[0]:
            text += os.read(ours, 10_000)
        os.close(ours)
        return text.decode()


def test_a_terminal_shows_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUIET", 0.2)
    text = shown(monkeypatch, 60.0)
    assert re.search(r"doing it: 00:\d\d", text)
    # Nothing of it stays.
    assert text.rstrip(" ").endswith("\r")
    assert shown(monkeypatch, 0.0) == ""


def test_a_pipe_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "QUIET", 0.0)
    with waiting.waiting("doing it"):
        time.sleep(0.1)
    assert capfd.readouterr() == ("", "")


def test_errors_pass_and_the_line_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUIET", 0.0)
    with pytest.raises(ZeroDivisionError):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        with waiting.waiting("dividing"):
            raise ZeroDivisionError


def test_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Stopwatch()
    now[0] += 3.21
    assert str(watch) == "3.2 s"
    now[0] += 70
    assert str(watch) == "1 min 13 s"
