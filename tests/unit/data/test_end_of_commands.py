"""Ctrl-C when the work of a command is done and Python takes it down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
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


def test_it_changes_nothing(repository: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=repository / "data-prep",
        capture_output=True,
        text=True,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "still there", "")
