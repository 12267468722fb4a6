"""Lets data workers (`--num-workers`) outlive signals that tell their training to stop.

Slurm and terminals signal every process of a job. The training that was told to stop still needs
its data workers, to finish the update and to validate; it ends them when it ends itself.
"""

from __future__ import annotations

import functools
import multiprocessing
import signal
from multiprocessing import util
from typing import Any

from torch.utils.data import DataLoader

from sut_fairseq.checkpoints.interruption import SIGNALS


def keep_data_workers() -> None:
    """Let data workers that are started from now on outlive signals, but not this process.

    If it is killed, they end too: torch has them check every few seconds whether it is alive.
    """
    DataLoader.__iter__ = _starting_deaf(DataLoader.__iter__)  # type: ignore[method-assign]
    # Before multiprocessing ends them by SIGTERM, which they block, and waits for them.
    util.Finalize(None, _end_data_workers, exitpriority=0)


def _starting_deaf(iterate: Any) -> Any:
    """`DataLoader.__iter__`, which starts the workers; they inherit which signals are blocked."""

    @functools.wraps(iterate)
    def starting(loader: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return iterate(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return starting


def _end_data_workers() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would call this a failure
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
