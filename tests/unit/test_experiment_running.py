"""Trainings as processes: whoever is told to stop passes that on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sut_fairseq.cli import _experiment_training
from sut_fairseq.experiments import grid, records
from sut_fairseq.experiments.commands import Machine
from sut_fairseq.experiments.running import Trainer
from sut_fairseq.experiments.training_process import ToldToStop

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def told_to_stop() -> Iterator[None]:
    """The ways in which `sut-experiment train` is told to stop."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _experiment_training._stop)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_training_is_started(
    number: signal.Signals, told_to_stop: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / "ctl-backward").mkdir(parents=True)
    (tmp_path / "data-bin" / "ctl-backward" / "dict.src.txt").touch()
    started: list[subprocess.Popen[bytes]] = []

    def start(self: Trainer, command: list[str], log: Path, *others: object) -> object:
        log.touch()
        started.append(subprocess.Popen(["sleep", "60"]))
        os.kill(os.getpid(), number)
        return started[0]

    monkeypatch.setattr(Trainer, "_start", start)
    part = grid.read_grid().only(["lstm"], ["ctl-backward"])
    (run,) = grid.runs(part, size="small", seeds=[1], updates=9, out=tmp_path / "runs")
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    try:
        with pytest.raises((KeyboardInterrupt, ToldToStop)):
            trainer.train([run])
        passed_on = signal.SIGTERM if number == signal.SIGINT else number
        assert started[0].poll() == -passed_on
        (session,) = records.read_record(run.folder).sessions
        assert session.outcome == "killed" and session.ended
    finally:
        started[0].kill()
