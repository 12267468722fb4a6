"""Ctrl-C in every command: one line, status 130, and no half-written file."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from sut_fairseq.experiments.records import read_record
from tests.integration.commands import Finished, run, start, words

COMMANDS = sorted(
    entry.name for entry in entry_points(group="console_scripts") if entry.name.startswith("sut-")
)


def maps(pid: int) -> str:
    """The files that a process has mapped, libraries and data."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def installed(command: str, *arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """The installed command, in a group of its own."""
    pipe = subprocess.PIPE
    line = [f"{sysconfig.get_path('scripts')}/{command}", *map(str, arguments)]
    return subprocess.Popen(
        line, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True, cwd=cwd
    )


def interrupted(
    line: Sequence[object], begun: Callable[[int], bool], *, cwd: Path, with_group: bool = False
) -> Finished:
    """A command that got Ctrl-C once something held of its process; the whole group, or alone."""
    with start(str(line[0]), *line[1:], cwd=cwd, own_group=True) as running:
        assert running.wait_for(lambda: begun(running.pid))
        (os.killpg if with_group else os.kill)(running.pid, signal.SIGINT)
        return running.finished(ok=False)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 11


WITHOUT_TORCH = ("sut-prepare", "sut-doctor", "sut-bleu", "sut-exact-match", "sut-experiment")
WITHOUT_TORCH += ("sut-user-dir",)


LATE = "sut-experiment train ctl --dry-run"  # it has begun when it imports torch


@pytest.mark.parametrize(
    "line", [*(f"{name} --version" for name in COMMANDS if name not in WITHOUT_TORCH), LATE]
)
def test_while_torch_is_imported(line: str) -> None:
    """By the installed script."""
    command, *arguments = words(line)
    with installed(command, *arguments) as process:
        while "libtorch" not in maps(process.pid):
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate()
    assert (process.returncode, printed, said) == (130, "", f"{command}: interrupted.\n")


def maps_data(part: str) -> Callable[[int], bool]:
    """Whether a process has begun to read binarised data, or a checkpoint."""
    return lambda pid: part in maps(pid)


@contextmanager
def silent(pipe: Path) -> Iterator[Callable[[int], bool]]:
    """Whether somebody has opened a pipe, from which nothing comes, not even its end."""
    held: list[int] = []

    def opened(pid: int) -> bool:
        with suppress(OSError):
            held.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(held)

    yield opened
    for writer in held:
        os.close(writer)


@pytest.mark.parametrize(
    ("line", "begun"),
    [
        ("sut-evaluate --path {ckpt} --data {data} --gen-subset train --thresholds {many} "
         "--csv {out}/rows.csv --plot {out}/rows.png", maps_data("train.src-tgt.src.bin")),
        ("sut-macs --path {ckpt} --data {data} --gen-subset train",
         maps_data("train.src-tgt.src.bin")),
        ("sut-report --path {ckpt} --data {data} --gen-subset train --steps-by length "
         "--max-tokens 1 --out {out}/report", maps_data("train.src-tgt.src.bin")),
        ("sut-benchmark decode --path {ckpt} --data {data} --repetitions 100000",
         maps_data("test.src-tgt.src.bin")),
        ("sut-average {copies} --output {out}/mean.pt", maps_data("checkpoint_last.pt")),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_at_work(
    line: str, begun: Callable[[int], bool], trained: Path, data: Path, tmp_path: Path
) -> None:
    many = " ".join(str(number / 1000) for number in range(1, 1000))
    values = {
        "ckpt": shlex.quote(str(trained)),
        "data": shlex.quote(str(data)),
        "out": shlex.quote(str(tmp_path)),
        "many": many,
        "copies": shlex.join([str(trained)] * 5000),
    }
    command = shlex.split(line.format(**values))
    check_interrupted(interrupted(command, begun, cwd=tmp_path), command[0])
    assert not list(tmp_path.rglob("*")), "nothing half-written"


@pytest.mark.parametrize("command", ["sut-bleu", "sut-exact-match"])
def test_while_nothing_comes(command: str, data: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with silent(pipe) as opened:
        finished = interrupted([command, pipe, "--data", data], opened, cwd=tmp_path)
    check_interrupted(finished, command)


def test_while_it_waits_for_a_line(trained: Path, tmp_path: Path) -> None:
    with installed("sut-translate", trained) as process:
        assert process.stderr is not None
        assert "has no tokenization.json" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate()
    assert (process.returncode, printed) == (130, "")
    assert said == "sut-translate: interrupted.\n"


def test_while_it_translates(trained: Path, tmp_path: Path) -> None:
    """What has been translated is printed in whole lines."""
    (tmp_path / "text").write_text("jump twice and run\n" * 5000)
    options = ("--input", tmp_path / "text", "--buffer", 1, "--max-len-b", 3)
    with start("sut-translate", trained, *options, own_group=True) as running:
        assert running.wait_for(lambda: "\n" in running.stdout)
        os.kill(running.pid, signal.SIGINT)
        finished = running.finished(ok=False)
    assert finished.status == 130 and finished.last_line == "sut-translate: interrupted."
    first = finished.stdout.splitlines(keepends=True)[0]
    assert finished.stdout == first * (len(finished.stdout) // len(first))
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("with_group", [False, True], ids=["alone", "with its children"])
def test_data_preparation(with_group: bool, tmp_path: Path) -> None:
    """Nothing of the result remains, whatever program was at it."""

    def begun() -> bool:
        return bool(list(tmp_path.glob(".out.*")))

    with installed("sut-prepare", *words("listops --out out"), cwd=tmp_path) as process:
        while not begun():
            assert process.poll() is None
            time.sleep(0.01)
        (os.killpg if with_group else os.kill)(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (130, "sut-prepare listops: interrupted.\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "with_group",
    [pytest.param(False, id="alone", marks=pytest.mark.slow), pytest.param(True, id="group")],
)
def test_an_experiment_goes_on(with_group: bool, tmp_path: Path) -> None:
    """And says so; the training that it started has ended too."""
    run("sut-experiment", *words("prepare scan -- --limit 24"), cwd=tmp_path)
    line = words("sut-experiment train scan --size small --updates 3000 --out run")
    log = tmp_path / "run" / "train.log"

    def begun(pid: int) -> bool:
        return log.exists() and 'num_updates": ' in log.read_text()

    finished = interrupted(list(line), begun, cwd=tmp_path, with_group=with_group)
    assert finished.status == 130 and "Traceback" not in finished.stderr
    assert finished.last_line == "sut-experiment: interrupted; goes on with the same command."
    (session,) = read_record(tmp_path / "run").sessions
    assert session.outcome == "interrupted"
    size = log.stat().st_size
    time.sleep(0.3)
    assert log.stat().st_size == size


def check_interrupted(finished: Finished, command: str) -> None:
    assert (finished.status, finished.stderr) == (130, f"{command}: interrupted.\n")


@pytest.mark.slow
def test_at_any_moment(trained: Path, data: Path, tmp_path: Path) -> None:
    """By the installed scripts, from the moment that our code is reached on."""
    generator = random.Random(1)
    lines = {
        "sut-evaluate": f"--path {trained} --data {data} --csv {tmp_path}/rows.csv",
        "sut-macs": f"--path {trained} --data {data}",
        "sut-report": f"--path {trained} --data {data} --out {tmp_path}/report",
        "sut-average": f"{trained} --output {tmp_path}/mean.pt",
        "sut-translate": f"{trained} --data {data}",
    }
    interrupted = 0
    for _ in range(12):
        for command, line in lines.items():
            with installed(command, *words(line)) as process:
                while "libtorch" not in maps(process.pid) and process.poll() is None:
                    time.sleep(0.002)
                time.sleep(generator.uniform(0, 4))
                process.send_signal(signal.SIGINT)
                _, said = process.communicate()
            assert process.returncode in (0, 130), (command, said)
            assert "Traceback" not in said and "Exception" not in said, (command, said)
            interrupted += process.returncode == 130
            assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert interrupted > 20
