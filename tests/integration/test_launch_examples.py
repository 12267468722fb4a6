"""The examples of starting an experiment under Slurm and torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sut_fairseq.checkpoints.interruption import UNFINISHED


@pytest.mark.parametrize("script", ["launch_slurm.sh", "launch_torchrun.sh"])
def test_help_of_launch_examples(script: str, repository: Path) -> None:
    command = ["bash", str(repository / "scripts" / script), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("usage: ") and f"scripts/{script} NAME" in shown.stdout


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, None])
def test_slurms_example_requeues_what_was_interrupted(
    number: signal.Signals | None, repository: Path, tmp_path: Path
) -> None:
    """A training that needs a moment to save."""
    interrupted = "trap 'sleep 0.5; exit 75' USR1; touch started; while :; do sleep 0.05; done"
    process = _start_slurms_example(repository, tmp_path, interrupted if number else "exit 3")
    if number is not None:
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
    assert process.wait(60) == (3 if number is None else UNFINISHED)
    assert (tmp_path / "called").read_text() == "train scan --seeds 1\n"
    requeued = tmp_path / "requeued"
    assert not requeued.exists() if number is None else requeued.read_text() == "requeue 42\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["before it starts", "before it handles signals"])
def test_slurms_example_requeues_what_had_hardly_started(
    moment: str, number: signal.Signals, repository: Path, tmp_path: Path
) -> None:
    if moment == "before it starts":  # while the environment is read
        (tmp_path / ".venv" / "bin").mkdir(parents=True)
        (tmp_path / ".venv" / "bin" / "activate").write_text(f"kill -{number.name[3:]} $$\n")
    process = _start_slurms_example(repository, tmp_path, "touch started; exec sleep 60")
    if moment == "before it handles signals":
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
    assert process.wait(30) == 128 + signal.SIGUSR1
    assert (tmp_path / "requeued").read_text() == "requeue 42\n"


def _start_slurms_example(repository: Path, folder: Path, training: str) -> subprocess.Popen[bytes]:
    """Start the script with stand-ins: for the training, and an `scontrol` that writes a file."""
    for name, body in (
        ("sut-experiment", f'echo "$@" > called\n{training}'),
        ("scontrol", 'echo "$@" > requeued'),
    ):
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (folder / name).chmod(0o755)
    return subprocess.Popen(
        ["bash", str(repository / "scripts" / "launch_slurm.sh"), "scan", "--seeds", "1"],
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "42"},
    )
