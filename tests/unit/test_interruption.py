"""Signals to a process that trains, and to one that only waits for those that do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from fairseq import checkpoint_utils
from torch.utils.data import DataLoader

from sut_fairseq.checkpoints import interruption
from sut_fairseq.checkpoints.data_workers import keep_data_workers
from sut_fairseq.checkpoints.interruption import UNFINISHED, Interruption
from sut_fairseq.checkpoints.stopping import Stop

# A process that trains, and looks now and then whether it was told to stop. It imports the module
# alone: the package would take seconds.
TRAINS = """
import multiprocessing, os, sys, time
sys.path.insert(0, sys.argv[2])
from interruption import Interruption, pass_on_signals

def train():
    interruption = Interruption()
    interruption.listen()
    os.write(1, b"ready\\n")
    while interruption.asked is None:
        time.sleep(0.01)
    os.write(1, f"{interruption.asked.name}\\n".encode())
    time.sleep(float(sys.argv[1]))
    sys.exit(75)
"""
# One that starts two of them and waits, as fairseq does on a machine with two GPUs.
WAITS = (
    TRAINS
    + """
pass_on_signals()
children = [multiprocessing.get_context("fork").Process(target=train) for _ in range(2)]
for child in children:
    child.start()
os.write(1, b"ready\\n")  # only now does it know both of them
for child in children:
    child.join()
os.write(1, f"{[child.exitcode for child in children]}\\n".encode())
"""
)


@contextmanager
def process(program: str, seconds: int) -> Iterator[subprocess.Popen[str]]:
    """Start a program in which a training takes so many seconds for the rest of an update."""
    folder = Path(interruption.__file__).parent
    command = [sys.executable, "-c", program, str(seconds), str(folder)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def lines(running: subprocess.Popen[str], number: int) -> list[str]:
    assert running.stdout is not None
    return [running.stdout.readline().rstrip() for _ in range(number)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_it_is_noted(number: signal.Signals) -> None:
    handlers = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1, number)}
    try:
        signal.signal(number, signal.default_int_handler)
        heard = Interruption()
        heard.listen()
        os.kill(os.getpid(), number)
        assert heard.asked == number
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)


def test_ctrl_c_twice_ends_at_once() -> None:
    with process(f"{TRAINS}\ntrain()", seconds=60) as running:
        for word in ("ready", "SIGINT"):
            assert lines(running, 1) == [word]
            running.send_signal(signal.SIGINT)
        assert running.wait(30) == -signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_whoever_waits_passes_it_on(number: signal.Signals) -> None:
    with process(WAITS, seconds=0) as running:
        assert lines(running, 3) == ["ready"] * 3
        running.send_signal(number)
        told = "SIGTERM" if number == signal.SIGINT else number.name
        assert lines(running, 3) == [told, told, f"[{UNFINISHED}, {UNFINISHED}]"]
        assert running.wait(30) == 0


def test_ctrl_c_in_a_terminal_comes_once() -> None:
    """To all processes at the same time."""
    with process(WAITS, seconds=0) as running:
        assert lines(running, 3) == ["ready"] * 3
        os.killpg(running.pid, signal.SIGINT)
        assert lines(running, 3)[2] == f"[{UNFINISHED}, {UNFINISHED}]"


def test_whoever_waits_is_told_last() -> None:
    """On a busy machine, when the others have ended already: it still tells how they ended."""
    with process(WAITS, seconds=0) as running:
        assert lines(running, 3) == ["ready"] * 3
        running.send_signal(signal.SIGSTOP)
        os.killpg(running.pid, signal.SIGINT)
        assert lines(running, 2) == ["SIGINT"] * 2
        time.sleep(0.5)  # until they have ended
        running.send_signal(signal.SIGCONT)
        assert lines(running, 1) == [f"[{UNFINISHED}, {UNFINISHED}]"]
        assert running.wait(30) == 0


def test_one_that_ends_in_this_very_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone, though multiprocessing has yet to learn of it; whoever is left is told."""
    told = []

    def kill(pid: int, number: int) -> None:
        told.append((pid, number))
        if pid == 1:
            raise ProcessLookupError

    children = [Namespace(pid=pid) for pid in (1, 2)]
    monkeypatch.setattr(multiprocessing.process, "_children", children)
    monkeypatch.setattr(multiprocessing, "active_children", lambda: children)
    monkeypatch.setattr(os, "kill", kill)
    interruption._pass_on(signal.SIGTERM, None)
    assert told == [(1, signal.SIGTERM), (2, signal.SIGTERM)]


def test_without_anybody_to_tell_it_ends() -> None:
    program = f"{TRAINS}\npass_on_signals()\nos.write(1, b'ready\\n')\ntime.sleep(60)"
    with process(program, seconds=0) as running:
        assert lines(running, 1) == ["ready"]
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == -signal.SIGTERM


def test_somebody_elses_handlers_stay() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        others = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
        Interruption().listen()
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
        for one, handler in others.items():
            signal.signal(one, handler)


def test_another_thread_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=Interruption().listen)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("end_of_epoch", "loss", "done"),
    [
        (True, 2.5, ["told epoch 3 has 2.5", "saved with None"]),
        (True, None, ["saved with None"]),
        (False, 2.5, ["saved with None"]),
    ],
)
def test_the_learning_rate_is_told_the_loss_before_saving(
    end_of_epoch: bool, loss: float | None, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of an epoch that was validated and that fairseq would not save."""
    did: list[str] = []
    monkeypatch.setattr(
        checkpoint_utils, "save_checkpoint", lambda *given: did.append(f"saved with {given[3]}")
    )
    trainer = Namespace(
        data_parallel_world_size=1,
        get_num_updates=lambda: 7,
        lr_step=lambda epoch, loss: did.append(f"told epoch {epoch} has {loss}"),
    )
    epoch = Namespace(epoch=3, end_of_epoch=lambda: end_of_epoch)
    told = Interruption()
    told.asked = signal.SIGTERM
    after = Stop(told)._after(lambda *given: ([loss], False))
    options = Namespace(checkpoint=Namespace(no_save=True))
    with pytest.raises(SystemExit, match=str(UNFINISHED)):
        after(options, trainer, None, epoch)
    assert did == done


def test_what_fairseq_has_saved_is_not_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the best checkpoint; the second one would have no loss."""
    did: list[str] = []
    told = Interruption()
    told.asked = signal.SIGTERM
    stop = Stop(told)
    save = stop._noting(lambda cfg, trainer, itr, loss: did.append(f"saved with {loss}"))
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", save)
    trainer = Namespace(data_parallel_world_size=1, get_num_updates=lambda: 7)

    def validate_and_save(options: Namespace, *given: Any) -> tuple[list[float], bool]:
        save(options.checkpoint, trainer, None, 2.5)
        return [2.5], False

    with pytest.raises(SystemExit, match=str(UNFINISHED)):
        options = Namespace(checkpoint=Namespace(no_save=True))
        stop._after(validate_and_save)(options, trainer, None, None)
    assert did == ["saved with 2.5"]


@pytest.mark.parametrize("file", ["checkpoint_last.pt", "other.pt"])
def test_what_goes_on_is_said(
    file: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """fairseq starts from the file of --restore-file each time."""
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *given: None)
    trainer = Namespace(data_parallel_world_size=1, get_num_updates=lambda: 7)
    told = Interruption()
    told.asked = signal.SIGTERM
    after = Stop(told)._after(lambda *given: ([None], False))
    saving = {"no_save": False, "no_last_checkpoints": False, "save_dir": "run"}
    options = Namespace(checkpoint=Namespace(**saving, restore_file=file))
    with pytest.raises(SystemExit), caplog.at_level("INFO"):
        after(options, trainer, None, Namespace(end_of_epoch=lambda: False))
    again = "saved in run, where the same command goes on"
    without = "" if file == "checkpoint_last.pt" else " without --restore-file, which would start"
    assert f"{again}{without}" in caplog.text
    assert ("without" in caplog.text) == bool(without)
    for option in ("no_save", "no_last_checkpoints"):
        caplog.clear()
        some = Namespace(checkpoint=Namespace(**{**saving, option: True}, restore_file=file))
        with pytest.raises(SystemExit), caplog.at_level("INFO"):
            after(some, trainer, None, Namespace(end_of_epoch=lambda: False))
        assert "update 7: the options let only some checkpoints be saved, or none" in caplog.text


def reads(told: Connection, number: signal.Signals | None) -> None:
    """Begin to read data with two workers, signal them, read the rest; or end while they live."""
    keep_data_workers()
    batches = iter(DataLoader(range(100), batch_size=1, num_workers=2))
    read = [int(next(batches))]
    workers = [child.pid for child in multiprocessing.active_children()]
    told.send(workers)
    if number is None:
        global alive  # as the iterator of a training that is cut off
        alive = batches
        sys.exit(UNFINISHED)
    for worker in workers:
        os.kill(worker or 0, number)
    told.send(read + [int(batch) for batch in batches])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, None])
def test_data_workers_end_with_the_training(number: signal.Signals | None) -> None:
    """And not before, whatever signal they get."""
    hears, told = multiprocessing.Pipe(duplex=False)
    forked = multiprocessing.get_context("fork").Process(target=reads, args=(told, number))
    forked.start()
    try:
        workers = hears.recv()
        assert len(workers) == 2
        if number is not None:
            assert hears.poll(30) and hears.recv() == [*range(100)]
        forked.join(30)
        assert forked.exitcode == (UNFINISHED if number is None else 0)
        assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    finally:
        forked.kill()
