"""A running fairseq-train: its lock, its log, how it is told to stop, and its outcome."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sut_fairseq.checkpoints.interruption import UNFINISHED
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.progress import Progress

_POLL = 0.2  # seconds between looks at a log


class ToldToStop(SystemExit):
    """This process was told to stop by a signal; it ends once its trainings have saved.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(UNFINISHED)
        self.number = number


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock a run against other processes; yields the descriptor by which a child holds it.

    Raises:
        InputError: if another process holds the lock.
    """
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{folder} is being trained by another process.") from error
        yield file.fileno()


def tell_to_stop(process: subprocess.Popen[bytes], end: BaseException) -> None:
    """Tell a training to stop, by the signal that told this process so; torchrun by SIGTERM.

    Launchers differ: srun passes SIGUSR1 on and ends its processes after SIGTERM, torchrun passes
    SIGTERM on and dies of SIGUSR1.
    """
    number = end.number if isinstance(end, ToldToStop) else signal.SIGTERM
    words = process.args if isinstance(process.args, list) else []
    torchrun = [Path(str(word)).name for word in words[:1]] == ["torchrun"]
    process.send_signal(signal.SIGTERM if torchrun else number)


def outcome(status: int | None) -> str:
    """The outcome of a process with this exit status; None: it was not waited for."""
    if status is None or status < 0:
        return "killed"
    return {0: "finished", UNFINISHED: "interrupted"}.get(status, "failed")


def follow(process: subprocess.Popen[bytes], log: Path, start: int, progress: Progress) -> None:
    """Show the progress of a process until it ends, from its log after the position `start`."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(start)
        line = ""
        while True:
            ended = process.poll() is not None
            while part := file.readline():
                line += part
                if line.endswith("\n"):
                    progress.read(line)
                    line = ""
            if ended:
                return
            time.sleep(_POLL)


def last_line(log: Path) -> str:
    """The last non-empty line of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it is empty")
