"""How long a training will take on this machine, estimated from its first updates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sut_data.errors import InputError
from sut_data.folders.choosing import Plan
from sut_data.text.chunks import cores
from sut_data.waiting import about, waiting

UPDATES = 22
SKIPPED = 2  # the first ones, which also allocate memory and start workers
LIMIT = 120.0  # seconds for all of it


@dataclass(frozen=True)
class Measured:
    """Times in seconds.

    Attributes:
        start: up to the first update.
        update: for one update.
        updates: how many were measured.
        validation: for one validation; None if there was no time for it.
    """

    start: float
    update: float
    updates: int
    validation: float | None

    def total(self, plan: Plan) -> float:
        """Time of a whole training."""
        validations = plan.size.validations * (self.validation or 0.0)
        return self.start + plan.updates * plan.batches * self.update + validations


def measure(command: Sequence[str], limit: float = LIMIT) -> Measured:
    """Start a training in a temporary folder, validate once, and discard it.

    Where an update accumulates several batches, only one is timed.

    Args:
        command: of fairseq-train.
        limit: seconds after which it is stopped; the updates seen until then count.

    Raises:
        InputError: if it fails, or is too slow for even a few updates.
    """
    with tempfile.TemporaryDirectory() as folder, waiting("timing a few updates"):
        short = ["--max-update", str(UPDATES), "--validate-interval-updates", str(UPDATES)]
        short += ["--update-freq", "1", "--no-save", "--save-dir", folder]
        short += ["--log-format", "json", "--log-interval", "1"]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, *short],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # to be killed with all that it starts
        )
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            _kill(process)

        timer = threading.Timer(limit, stop)
        timer.start()
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=20)
        try:
            times = _times(process.stdout, last)
            status = process.wait()
        finally:
            timer.cancel()
            _kill(process)
    if status != 0 and not stopped.is_set():
        print("".join(last), end="", file=sys.stderr)
        raise InputError(
            f"fairseq-train failed with status {status}; the end of its output is above. The data "
            "are prepared."
        )
    return _measured(times, began, limit)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it has ended just now
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _times(
    lines: Iterable[str], last: deque[str], clock: Callable[[], float] = time.monotonic
) -> dict[str, list[float]]:
    """Times at which the log reported each update (`train_inner`) and validation (`valid`)."""
    times: dict[str, list[float]] = {"train_inner": [], "valid": []}
    for line in lines:
        last.append(line)
        for name, found in times.items():
            _, told, values = line.partition(f" | INFO | {name} | ")
            if told and _is_json(values):
                found.append(clock())
    return times


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _measured(times: dict[str, list[float]], began: float, limit: float) -> Measured:
    """Derive the measurements from the times.

    Raises:
        InputError: if there are too few.
    """
    updates = times["train_inner"]
    if len(updates) < 2:
        raise InputError(
            f"{len(updates)} updates in {about(limit)} are too few to tell how long the training "
            "will take: it needs a faster machine, or a smaller model (--arch)."
        )
    skipped = min(SKIPPED, len(updates) - 1) - 1
    measured = len(updates) - 1 - skipped
    update = (updates[-1] - updates[skipped]) / measured
    validation = times["valid"][0] - updates[-1] if times["valid"] else None
    return Measured(updates[0] - began, update, measured, validation)


def sentence(measured: Measured, plan: Plan) -> str:
    """Return a sentence with the measurement and the estimate."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    number = plan.gpus or (int(threads) if threads.isdecimal() else cores())
    where = f"{number} {'GPU' if plan.gpus else 'CPU core'}{'s' * (number > 1)}"
    batch = "an update" if plan.batches == 1 else "a batch"
    return (
        f"Measured: {measured.update:.2g} s for {batch} (mean of {measured.updates}) on {where}; "
        f"the {plan.updates:,} updates will take about {about(measured.total(plan))} here."
    )
