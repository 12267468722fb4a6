"""Ctrl-C when something is half-made, and when the work is done and Python takes all down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_AT_WORK = """
import sys
from sut_data.command_line import run_command

class HalfMade:
    def __init__(self, itself):
        self.itself = self if itself else None
        raise KeyboardInterrupt
        self.file = open("file")

    def __del__(self):
        self.file.close()

def work():
    try:
        HalfMade(itself=False)
    finally:
        HalfMade(itself=True)

sys.exit(run_command("sut-something", work))
"""

_WHEN_DONE = """
import os, signal, sys
sys.argv = ["sut-something"]
from sut_data.interrupts import end_when_interrupted
end_when_interrupted()

class Late:
    def __del__(self):  # after Python has given up all handlers of signals
        os.kill(os.getpid(), signal.SIGINT)
        os.write(1, b"still there")

late = Late()
"""

_IN_A_FINALIZER = """
import os, signal, sys, time
sys.argv = ["sut-something"]
from sut_data.interrupts import end_when_interrupted
end_when_interrupted()
from sut_data.command_line import run_command

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        print("freed")  # not reached: the interruption comes first, and Python drops it

def work():
    Freed()
    time.sleep(60)

sys.exit(run_command("sut-something", work))
"""


def test_what_comes_in_a_finalizer_is_not_lost(repository: Path) -> None:
    assert run(_IN_A_FINALIZER, repository) == (130, "", "sut-something: interrupted.\n")


def test_what_is_half_made_is_silent(repository: Path) -> None:
    """Freed by counting references, in a cycle, and in the context of the interruption."""
    assert run(_AT_WORK, repository) == (130, "", "sut-something: interrupted.\n")


def test_when_all_is_done_it_changes_nothing(repository: Path) -> None:
    assert run(_WHEN_DONE, repository) == (0, "still there", "")


def run(program: str, repository: Path) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of a program."""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=repository / "data-prep",
        capture_output=True,
        text=True,
    )
    return finished.returncode, finished.stdout, finished.stderr
