"""Trainings as processes: whoever is told to stop passes that on, and who computes where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sut_data.text.chunks import cores
from sut_fairseq.checkpoints.progress import Progress
from sut_fairseq.cli import _experiment_training, experiment
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import commands, grid, preparing, reading, records, runs
from sut_fairseq.experiments.commands import Machine
from sut_fairseq.experiments.provenance import Code, describe_computer
from sut_fairseq.experiments.running import FailedTrainingsError, Trainer
from sut_fairseq.experiments.runs import Change, Run
from sut_fairseq.experiments.training_process import ToldToStop
from tests.integration.commands import run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


_FINISHED = records.Session(
    stage="",
    command=[],
    started="2026-01-01",
    outcome="finished",
    code=Code(version="0"),
    computer=describe_computer("1", 0),
)


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


def cells(
    folder: Path, updates: int = 9, seeds: tuple[int, ...] = (1,), column: str = "ctl-backward"
) -> list[Run]:
    """Runs of a small model, on data that nobody reads."""
    data = folder / "data-bin" / column
    data.mkdir(parents=True, exist_ok=True)
    (data / "dict.src.txt").touch()
    part = grid.read_grid().only(["lstm"], [column])
    return grid.runs(part, size="small", seeds=seeds, updates=updates, out=folder / "runs")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_training_is_started(
    number: signal.Signals, told_to_stop: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started: list[subprocess.Popen[bytes]] = []

    def start(self: Trainer, command: list[str], log: Path, *others: object) -> object:
        log.touch()
        started.append(subprocess.Popen(["sleep", "60"]))
        os.kill(os.getpid(), number)
        return started[0]

    monkeypatch.setattr(Trainer, "_start", start)
    (run,) = cells(tmp_path)
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


def test_a_signal_while_data_are_prepared(
    told_to_stop: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = tmp_path / "told"
    code = (
        "import os, pathlib, signal, time\n"
        f"told = pathlib.Path({str(told)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.touch() or exit(143))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(ToldToStop):
        preparing.prepare(reading.read("scan"), None, None, [], (sys.executable, "-c", code))
    assert told.exists()


def test_a_refused_call_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had it written records of other settings, later calls would be refused as well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    trainer.train(cells(tmp_path, seeds=(2,)))
    others = cells(tmp_path, updates=7, seeds=(1, 2))
    (tmp_path / "large_disk").mkdir()
    (others[1].folder / "checkpoints").symlink_to(tmp_path / "large_disk")
    (others[1].folder / "checkpoints" / "checkpoint_last.pt").touch()
    with pytest.raises(InputError, match=r"lstm-seed-2 holds a run of other settings: "):
        trainer.train(others)
    assert not others[0].folder.exists()
    trainer.train(cells(tmp_path, seeds=(1, 2)))
    assert records.read_record(others[0].folder).updates == 9


def test_a_dry_run_says_what_the_training_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    line = ["train", "contextual_retrieval", "--out", "run"]
    assert experiment.main([*line, "--updates", "9"]) == 0
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "checkpoint_last.pt").touch()
    assert experiment.main([*line, "--updates", "9", "--dry-run"]) == 0
    assert capsys.readouterr().err == ""
    assert experiment.main([*line, "--updates", "7", "--dry-run"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "run holds a run of other settings: " in shown.err and "(9, now 7)" in shown.err


def test_a_run_that_saved_nothing_may_have_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the folder of a misspelt call can be used again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    trainer.train(cells(tmp_path, updates=7))
    (run,) = cells(tmp_path, updates=9)
    trainer.train([run])
    assert records.read_record(run.folder).updates == 9


def test_checkpoints_without_a_record_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new record would not say how they were trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    (run,) = cells(tmp_path)
    trainer.train([run])
    _at(run.folder, 9, monkeypatch)
    path = run.folder / records.RECORD
    path.write_text(path.read_text()[:50])
    with pytest.raises(InputError, match=r"damaged .*: put a copy of it back, or train in another"):
        trainer.train([run])
    path.unlink()
    with pytest.raises(InputError, match=r"has checkpoints, but no run.json .*: put a copy of it"):
        trainer.train([run])
    assert not path.exists()


def test_a_training_that_is_killed_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def start(self: Trainer, command: list[str], log: Path, *others: object) -> object:
        log.write_text("the last line\n")
        return subprocess.Popen(["sh", "-c", "kill -KILL $$"])

    monkeypatch.setattr(Trainer, "_start", start)
    (run,) = cells(tmp_path)
    with pytest.raises(InputError, match="was killed, which happens when memory runs out; the sam"):
        Trainer(Machine(0), jobs=1, say=lambda sentence: None).train([run])
    (session,) = records.read_record(run.folder).sessions
    assert session.outcome == "killed"


def test_a_run_goes_on_after_its_data_were_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record says where they are now, so that it can be evaluated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    (run,) = cells(tmp_path, updates=9)
    trainer.train([run])
    trainer.train([replace(run, data=replace(run.data, folder="/new/place"))])
    record = records.read_record(run.folder)
    assert (record.data.folder, record.data.digest) == ("/new/place", run.data.digest)


def test_the_log_of_a_run_that_is_replaced_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curve of the new run would have the points of both."""
    monkeypatch.chdir(tmp_path)

    def start(self: Trainer, command: list[str], log: Path, *others: object) -> object:
        with open(log, "a", encoding="utf-8") as file:
            file.write(command[command.index("--max-update") + 1])
        return subprocess.Popen(["false"])

    monkeypatch.setattr(Trainer, "_start", start)
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    for updates in (7, 7, 9, 11):
        with pytest.raises(InputError, match="failed"):
            trainer.train(cells(tmp_path, updates=updates))
    (run,) = cells(tmp_path)
    logs = {path.name: path.read_text() for path in run.folder.glob("train.log*")}
    assert logs == {"train.log": "11", "train.log.earlier": "77", "train.log.earlier-2": "9"}


def test_finished_trainings_are_comments_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `launch_torchrun.sh` runs on other machines is what the first one runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    arguments = Namespace(launcher="", gpus=0, jobs=1)
    (run,) = cells(tmp_path)
    line = _experiment_training.listed(run, arguments)
    assert line.startswith("fairseq-train ") and "\n" not in line
    Trainer(Machine(0), jobs=1, say=print).train([run])
    assert _experiment_training.listed(run, arguments) == line
    records.write_record(run.folder, replace(records.read_record(run.folder), sessions=[_FINISHED]))
    assert _experiment_training.listed(run, arguments) == f"# finished: {line}"
    (other,) = cells(tmp_path, updates=7)
    assert _experiment_training.listed(other, arguments).startswith("fairseq-train ")


def test_a_dry_run_leaves_finished_stages_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If other settings are asked for, only the main training is still to come."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    (run,) = cells(tmp_path, updates=7, column="logical_inference-full")
    arguments = Namespace(gpus=0, jobs=1, launcher="")
    Trainer(Machine(0), jobs=1, say=print).train([run])
    record = records.read_record(run.folder)
    finished = [replace(_FINISHED, stage=stage) for stage in record.trainings]
    records.write_record(run.folder, replace(record, sessions=finished))
    other = replace(run, choice=replace(run.choice, own=(("dropout", "0.5"),)))
    for change, done in ((Change.NOTHING, [False, False]), (Change.SETTINGS, [True, False])):
        lines = _experiment_training.listed(other, arguments, change).splitlines()
        assert [line.startswith("# finished: ") for line in lines] == done
    lines = _experiment_training.listed(run, arguments, Change.SETTINGS).splitlines()
    assert all(line.startswith("# finished: ") for line in lines)


def test_trainings_go_on_when_nobody_reads_what_is_said(tmp_path: Path) -> None:
    program = (
        "import os; from sut_fairseq.cli._experiment_training import clock\n"
        "reading, writing = os.pipe(); os.dup2(writing, 1); os.close(writing); os.close(reading)\n"
        f"say = clock(); say('a'); say('b'); open({str(tmp_path / 'done')!r}, 'w')"
    )
    run("python", "-c", program)
    assert (tmp_path / "done").exists()


def test_numbers_of_the_command_line_are_those_of_the_file() -> None:
    before = {"": {"lr": "1e-3", "dropout": 0.3, "arch": "x", "share": True}}
    assert not records.differences(before, {"": {**before[""], "lr": 0.001, "dropout": "0.3"}})
    assert records.differences(before, {"": {**before[""], "dropout": "0.2", "share": None}}) == [
        *("dropout (0.3, now 0.2)", "share (True, now None)"),
    ]


@pytest.mark.parametrize(
    ("visible", "names"), [(None, ["0", "1"]), ("2, 3", ["2", "3"]), ("GPU-a,GPU-b,GPU-c", None)]
)
def test_trainings_share_the_gpus_that_the_user_lets_them_see(
    visible: str | None, names: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    told: list[tuple[str, str]] = []

    def start(command: list[str], **how: Any) -> object:
        if "--save-dir" not in command:  # git is asked for the version of the code
            return popen(command, **how)
        processes = command[command.index("--distributed-world-size") + 1]
        told.append((how["env"]["CUDA_VISIBLE_DEVICES"], processes))
        raise InputError("it would be trained")

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    trainer = Trainer(Machine(2), jobs=2, say=lambda sentence: None)
    with pytest.raises(InputError, match="it would be trained; it would be trained"):
        trainer.train(cells(tmp_path, seeds=(1, 2)))
    assert sorted(told) == [(name, "1") for name in names or ["GPU-a", "GPU-b"]]


def test_as_many_processes_as_gpus() -> None:
    """fairseq would take every GPU there is; a launcher starts them by itself."""
    assert Machine(3).settings()["distributed-world-size"] == 3
    assert "distributed-world-size" not in Machine(3, launched=True).settings()
    assert Machine(0).settings() == {"cpu": True, "num-workers": 0}


def test_as_many_threads_as_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert Trainer(Machine(0), jobs=1, say=print)._threads == "3"
    assert Trainer(Machine(0), jobs=2, say=print)._threads == "1"


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twice the time of a core, in 64 that it sees."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    for said, number in (("200000 100000", 2), ("150000 100000", 2), ("max 100000", 64)):
        monkeypatch.setattr(Path, "read_text", lambda path, said=said, **how: f"{said}\n")
        assert cores() == number


def test_options_of_the_machine_are_none_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a training on many machines at the paper's size is one of the paper's size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    (run,) = cells(tmp_path)
    own = commands.read_words(["--distributed-world-size", "16", "--lr", "0.1"])
    run = replace(run, choice=replace(run.choice, own=own))
    Trainer(Machine(16, launched=True), jobs=1, say=print).train([run])
    assert records.read_record(run.folder).options == {"lr": "0.1"}


def _at(folder: Path, updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has saved a checkpoint after so many updates."""
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / "checkpoint_last.pt").touch()
    monkeypatch.setattr(runs, "progress_of", lambda path: Progress(updates, True))


class _Stopped:
    """A training that is interrupted after it has saved so many updates in all."""

    def __init__(self, folder: Path, updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._save = lambda: _at(folder, updates, monkeypatch)

    def __call__(self, *arguments: Any) -> str:
        self._save()
        raise KeyboardInterrupt


def test_a_run_goes_on_to_another_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when asked, and its record says for which lengths it was planned before."""
    monkeypatch.chdir(tmp_path)
    trained: list[str] = []
    monkeypatch.setattr(
        Trainer, "_stage", lambda self, run, training, *others: trained.append(training.name) or ""
    )
    plain = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    changing = Trainer(Machine(0), jobs=1, say=lambda sentence: None, change=Change.LENGTH)
    plain.train(cells(tmp_path, updates=7))
    (longer,) = cells(tmp_path, updates=9)
    record = records.read_record(longer.folder)
    records.write_record(longer.folder, replace(record, sessions=[_FINISHED]))
    with pytest.raises(InputError, match=r"has no checkpoint_last.pt to go on from: put it back"):
        changing.train([longer])
    _at(longer.folder, 7, monkeypatch)
    with pytest.raises(
        InputError, match=r"now 9\); choose another --out, or go on .* --change-length\."
    ):
        plain.train([longer])
    assert records.read_record(longer.folder).finished()
    changing.train([longer])
    now = records.read_record(longer.folder)
    assert (now.updates, now.planned, now.planned_before) == (9, "9 updates", ["7 updates"])
    assert now.length == "9 updates, planned for 7 updates before"
    assert not now.finished() and now.sessions[0].outcome == "prolonged"
    assert now.key() != replace(now, planned_before=[]).key()
    plain.train([longer])  # the same command goes on without being asked again
    changing.train([longer])
    assert records.read_record(longer.folder) == now


def test_a_run_goes_on_with_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when asked; a stage that is finished stays as it was, and the record tells of both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    plain = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    changing = Trainer(Machine(0), jobs=1, say=lambda sentence: None, change=Change.SETTINGS)
    (run,) = cells(tmp_path, updates=7, column="logical_inference-full")
    plain.train([run])
    _at(run.folder, 7, monkeypatch)
    record = records.read_record(run.folder)
    stages = [replace(_FINISHED, stage=stage) for stage in record.trainings]
    records.write_record(run.folder, replace(record, sessions=stages))
    own = (("dropout", "0.5"), ("weight-decay", "0.1"))
    other = replace(run, choice=replace(run.choice, updates=9, own=own))
    with pytest.raises(InputError, match=r"dropout \(0, now 0.5\).* with --change-settings\."):
        plain.train([other])
    with pytest.raises(InputError, match=r"dropout \(0, now 0.5\)"):
        Trainer(Machine(0), jobs=1, say=print, change=Change.LENGTH).train([other])

    before = records.read_record(run.folder)
    with monkeypatch.context() as failing, pytest.raises(FailedTrainingsError):
        failing.setattr(Trainer, "_stage", lambda *arguments: "another shape")
        changing.train([other])
    assert records.read_record(run.folder) == before

    # Likewise if it is stopped before anything is saved; once there is progress, the change stays.
    for saved in (7, 8):
        with monkeypatch.context() as stopping, pytest.raises(KeyboardInterrupt):
            stopping.setattr(Trainer, "_stage", _Stopped(run.folder, saved, monkeypatch))
            changing.train([other])
        assert (records.read_record(run.folder) == before) is (saved == 7)
    _at(run.folder, 7, monkeypatch)
    records.write_record(run.folder, before)

    unstaged = replace(before, trainings={"": before.trainings[""]}, sessions=[_FINISHED])
    records.write_record(run.folder, unstaged)
    with pytest.raises(InputError, match=r"with other stages \(none; now short\), which cannot"):
        changing.train([other])
    records.write_record(run.folder, before)
    wrong = replace(other, choice=replace(other.choice, own=(("max-update", "1e4"),)))
    changing.train([wrong])  # that it is no number fairseq-train says
    records.write_record(run.folder, before)

    changing.train([other])
    now = records.read_record(run.folder)
    assert now.options == dict(own) and (now.updates, now.planned) == (9, "9 updates")
    assert now.planned_before == ["7 updates with --dropout 0, no --weight-decay until update 7"]
    assert now.own_length == (
        "9 updates, planned for 7 updates with --dropout 0, no --weight-decay until update 7 "
        "before (`--change-settings`)"
    )
    assert now.settings_changed and not before.settings_changed
    assert now.trainings["short"] == record.trainings["short"] and now.finished("short")
    assert now.trainings[""]["dropout"] == "0.5" and not now.finished()
    plain.train([other])  # the same command goes on without being asked again
    changing.train([other])
    assert records.read_record(run.folder) == now

    for different in (
        replace(other, choice=replace(other.choice, model="rel")),
        replace(other, seed=2),
        replace(other, data=replace(other.data, digest="another")),
    ):
        with pytest.raises(InputError, match="of other settings|on other data"):
            changing.train([different])
    few = replace(other, choice=replace(other.choice, updates=7, own=()))
    with pytest.raises(InputError, match="been trained for 7 updates: give --updates more"):
        changing.train([few])
    assert records.read_record(run.folder) == now


def test_lengths_that_a_run_cannot_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None, change=Change.LENGTH)
    trainer.train(cells(tmp_path, updates=9))
    (shorter,) = cells(tmp_path, updates=7)
    _at(shorter.folder, 8, monkeypatch)
    before = records.read_record(shorter.folder)
    with pytest.raises(InputError, match="been trained for 8 updates: give --updates more"):
        trainer.train([shorter])
    _at(shorter.folder, 6, monkeypatch)
    trainer.train([shorter])  # it has not got so far
    records.write_record(shorter.folder, before)
    other = replace(shorter, choice=replace(shorter.choice, updates=20, own=(("dropout", 0.5),)))
    with pytest.raises(InputError, match=r"other settings: [^;]*dropout.*; choose another --out"):
        trainer.train([other])
    assert records.read_record(shorter.folder) == before


def test_a_session_that_was_killed_ended_with_its_log(tmp_path: Path) -> None:
    began = replace(_FINISHED, outcome="running", started="2026-01-01T10:00:00+00:00")
    assert records.closed(tmp_path, _FINISHED) is _FINISHED
    lost = records.closed(tmp_path, began)  # before it wrote a line
    assert (lost.outcome, lost.seconds) == ("killed", 0.0)
    log = tmp_path / records.LOG
    log.touch()
    end = datetime(2026, 1, 1, 10, 2, tzinfo=UTC).timestamp()
    os.utime(log, (end, end))
    killed = records.closed(tmp_path, began)
    assert (killed.outcome, killed.seconds) == ("killed", 120.0)
    assert killed.ended == records.stamp(datetime(2026, 1, 1, 10, 2, tzinfo=UTC))


@pytest.mark.parametrize(("minute", "seconds"), [(1, 60.0), (3, 120.0), (-1, 120.0)])
def test_a_copy_of_a_log_ended_when_it_says(minute: int, seconds: float, tmp_path: Path) -> None:
    """Unless that cannot be."""
    began = replace(_FINISHED, outcome="running", started="2026-01-01T10:00:00+00:00")
    start = datetime(2026, 1, 1, 10, tzinfo=UTC)
    said = (start + timedelta(minutes=minute)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    log = tmp_path / records.LOG
    log.write_text(f"{said} | INFO | fairseq | saved\nTraceback of 2026-01-01 09:00:00\n")
    copied = (start + timedelta(minutes=2)).timestamp()
    os.utime(log, (copied, copied))
    assert records.closed(tmp_path, began).seconds == seconds


def test_signals_have_their_usual_effect_after_the_trainings() -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in SIGNALS]

    before = handlers()
    with _experiment_training.stoppable():
        assert handlers() != before
    assert handlers() == before
    with pytest.raises(InputError), _experiment_training.stoppable():
        raise InputError("no")
    assert handlers() == before
    # A second signal must not cut the end short.
    try:
        with pytest.raises(ToldToStop), _experiment_training.stoppable("again"):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize("command", ["train scan", "matrix"])
def test_a_seed_that_numpy_refuses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """fairseq-train would end with it, once the folders are made."""
    with pytest.raises(SystemExit):
        experiment.main([*command.split(), "--seeds", "1", str(2**32)])
    assert "--seeds: must be at most 4294967295, but is 4294967296;" in capsys.readouterr().err
