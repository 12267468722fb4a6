"""Killed at random moments, again and again: nothing is lost, nothing half-made is trusted.

The slow suite kills a training 200 times, the default one a few times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_data.folders.prepared import is_whole, read_stamp
from sut_fairseq.checkpoints.integrity import check_whole
from sut_fairseq.experiments.records import read_record
from tests.integration.commands import TINY, Finished, Running, run, start, train, training, words

# Files of every kind at each update, of 5 MB, so that writing them is not over in no time.
OFTEN = words(
    "--encoder-embed-dim 128 --save-interval-updates 1 --keep-interval-updates 2 "
    "--keep-best-checkpoints 2 --keep-last-epochs 2"
)
# What the log says when a phase begins.
PHASES = {
    "reading the checkpoint": "Preparing to load checkpoint",
    "computing": '"num_updates": ',
    "validating": "begin validation",
    "saving": "Preparing to save checkpoint",
    "saved": "Saved checkpoint",
}


def curve(finished: Finished, name: str) -> dict[int, dict[str, Any]]:
    """What was logged at each update, but for what the clock says."""
    clock = {"wps", "ups", "wall"}
    lines = {}
    for line in finished.logged(name):
        update = int(line.get("num_updates") or line[f"{name}_num_updates"])
        lines[update] = {k: v for k, v in line.items() if not clock & set(k.split("_"))}
    return lines


def phase_of(log: str) -> str:
    """What a training was doing when its log ended."""
    last = {log.rfind(beginning): phase for phase, beginning in PHASES.items()}
    return "starting" if max(last) < 0 else last[max(last)]


def kill_at_random(running: Running, choice: random.Random) -> None:
    """At a moment of the first seconds, or shortly after some phase has begun."""
    phase = choice.choice([*PHASES, *["saving"] * 3, None])
    if phase is None:
        running.kill(after=choice.uniform(0, 3))
        return
    times = choice.randint(1, 3)
    running.wait_for(lambda: running.stdout.count(PHASES[phase]) >= times)
    running.kill(after=choice.uniform(0, 0.05))


@pytest.mark.parametrize(
    ("kills", "updates"), [(4, 7), pytest.param(200, 30, marks=pytest.mark.slow)]
)
def test_a_training_killed_at_random(
    kills: int, updates: int, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same curve and the same end, bit for bit, as if nothing had happened.

    Five updates make an epoch.
    """
    length = ("--max-update", updates)
    whole = tmp_path / "whole"
    reference = train(data, whole, *TINY, *OFTEN, *length)
    curves = {name: curve(reference, name) for name in ("train_inner", "valid")}
    assert list(curves["train_inner"]) == list(range(1, updates + 1))
    choice, phases, survivors = random.Random(1), Counter[str](), 0
    while sum(phases.values()) < kills or not survivors:
        folder = tmp_path / f"survivor-{survivors}"
        with start("fairseq-train", *training(data, folder, *TINY, *OFTEN, *length)) as running:
            if sum(phases.values()) < kills:
                kill_at_random(running, choice)
            life = running.finished(ok=False)
        # Whatever it logged before, this life or an earlier one, is what the reference logged.
        for name, expected in curves.items():
            for update, line in curve(life, name).items():
                assert line == expected[update]
        for path in folder.glob("*.pt"):
            check_whole(path)
        if life.status == -signal.SIGKILL:
            phases[phase_of(life.stdout)] += 1
            continue
        assert life.status == 0, life.stderr[-2000:]  # it could not be resumed
        ends = [torch.load(one / "checkpoint_last.pt") for one in (whole, folder)]
        for part in ("model", "last_optimizer_state"):
            torch.testing.assert_close(ends[0][part], ends[1][part], rtol=0, atol=0)
        assert ends[0]["extra_state"]["best"] == ends[1]["extra_state"]["best"]
        names = [{path.name for path in one.iterdir()} for one in (whole, folder)]
        assert names[0] == names[1]
        survivors += 1
    with capsys.disabled():
        print(f"\n{kills} kills while {dict(phases)}: {survivors} whole trainings, all equal")
    assert not [*tmp_path.glob("survivor-*/*.damaged*")]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [20])
def test_data_preparation_killed_at_random(kills: int, tmp_path: Path) -> None:
    """What is there is one of the folders that were asked for, and whole."""
    limits = (20, 30)
    contents, seconds = {}, 0.0
    for limit in limits:
        began = time.monotonic()
        run("sut-prepare", "scan", "--limit", limit, "--out", tmp_path / str(limit))
        seconds = time.monotonic() - began
        contents[limit] = content(tmp_path / str(limit))
    choice, out = random.Random(1), tmp_path / "made" / "out"
    for number in range(kills + 1):
        limit = limits[number % 2]
        with start("sut-prepare", "scan", "--limit", limit, "--out", out) as running:
            if number < kills:
                running.kill(after=choice.uniform(0, seconds))
            life = running.finished(ok=number == kills)
        assert life.status in (0, -signal.SIGKILL), life.stderr
        if out.exists():
            stamp = read_stamp(out)
            assert stamp is not None and is_whole(out, stamp)
            assert content(out) in contents.values()
    assert content(out) == contents[limits[kills % 2]]
    assert os.listdir(out.parent) == ["out"]


def content(folder: Path) -> dict[str, bytes]:
    """All files of a prepared folder but fairseq's log, which has paths and times."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: path.read_bytes() for name, path in files.items() if path.suffix in PREPARED}


PREPARED = (".bin", ".idx", ".txt", ".src", ".tgt")


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10])
def test_an_experiment_killed_at_random(kills: int, tmp_path: Path) -> None:
    """Two trainings side by side; a kill takes the command alone, or its trainings with it."""
    run("sut-experiment", *words("prepare scan -- --limit 24"), cwd=tmp_path)
    line = words("train scan --size small --updates 6 --seeds 1 2 --jobs 2")
    more = words("-- --save-interval-updates 1 --log-interval 1")
    run("sut-experiment", *line, "--out", "whole", *more, cwd=tmp_path)
    choice = random.Random(1)
    for _ in range(kills):
        with start("sut-experiment", *line, "--out", "killed", *more, cwd=tmp_path) as running:
            running.kill(after=choice.uniform(1, 15))
            life = running.finished(ok=False)
        assert life.status in (0, -signal.SIGKILL), life.stderr
        for seed in (1, 2):
            end_training(tmp_path / "killed" / f"sut-seed-{seed}", at_once=choice.random() < 0.7)
    run("sut-experiment", *line, "--out", "killed", *more, cwd=tmp_path)
    for seed in (1, 2):
        whole, killed = (tmp_path / name / f"sut-seed-{seed}" for name in ("whole", "killed"))
        assert read_record(killed).finished()
        ends = [torch.load(one / "checkpoints" / "checkpoint_last.pt") for one in (whole, killed)]
        for part in ("model", "last_optimizer_state"):
            torch.testing.assert_close(ends[0][part], ends[1][part], rtol=0, atol=0)


def end_training(run: Path, *, at_once: bool) -> None:
    """Kill a training that outlives its command, or let it end."""
    if not (run / "run.json").exists():
        return
    sessions = json.loads((run / "run.json").read_text())["sessions"]
    command = sessions[-1]["command"][1:] if sessions else None
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if command and line[-len(command) - 1 : -1] == command:
            if at_once:
                os.kill(int(process.name), signal.SIGKILL)
            while process.exists():
                time.sleep(0.05)
