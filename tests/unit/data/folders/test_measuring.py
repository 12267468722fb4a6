"""The time that a training will take, from the log of its first updates."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sut_data.errors import InputError
from sut_data.folders import measuring
from sut_data.folders.choosing import choose
from sut_data.folders.measuring import Measured, measure, sentence
from sut_data.waiting import about

# What stands for fairseq-train: it takes the options and writes a log.
TRAINING = """
import sys, time
print("args:", *sys.argv[1:], flush=True)
def log(name, text):
    print(f"2026-01-01 00:00:00 | INFO | {name} | {text}", flush=True)
updates = int(sys.argv[sys.argv.index("--max-update") + 1])
for number in range(updates):
    time.sleep(0.3 if number == 0 else 0.02)
    log("train_inner", '{"num_updates": %d}' % number)
log("fairseq_cli.train", "begin validation")
time.sleep(0.2)
log("valid", '{"valid_loss": 1}')
log("train", "{ no JSON")
"""
STUCK = TRAINING.replace("range(updates)", "range(4)").replace("(0.2)", "(99)")


def training(text: str) -> list[str]:
    return [sys.executable, "-c", text, "data", "--arch", "a"]


def test_what_a_log_says() -> None:
    found = measure(training(TRAINING))
    assert found.updates == measuring.UPDATES - measuring.SKIPPED
    assert 0 < found.update < found.start and found.start >= 0.3
    assert found.validation is not None and found.validation > 0


def test_what_the_times_of_its_lines_say() -> None:
    """Two slow first updates do not count, nor lines that tell of nothing."""
    now = 100.0

    def log() -> Iterator[str]:
        nonlocal now
        told = [("", 10.0), ("train_inner | {}", 2.0), ("train_inner | {}", 1.5)]
        told += [("train_inner | {}", 0.5)] * 4
        told += [("train_inner | { no JSON", 9.0), ("valid | {}", 5.0), ("valid | {}", 7.0)]
        for line, seconds in told:
            now += seconds
            yield f"2026-01-01 00:00:00 | INFO | {line}\n"

    times = measuring._times(log(), deque(maxlen=1), lambda: now)
    found = measuring._measured(times, began=100.0, limit=120)
    assert found == Measured(start=12.0, update=0.5, updates=4, validation=14.0)


def test_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is saved, and the folder is gone."""
    monkeypatch.setattr(measuring.tempfile, "tempdir", str(tmp_path))
    failing = TRAINING.replace("updates = int", "sys.exit(3) or int")
    with pytest.raises(InputError, match="fairseq-train failed with status 3; the end of its outp"):
        measure(training(failing))
    assert os.listdir(tmp_path) == []


def test_the_end_of_its_output_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    failing = "for number in range(30): print(number)\nraise SystemExit('out of memory')"
    with pytest.raises(InputError, match="failed with status 1"):
        measure(training(failing))
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 20 and shown[-2:] == ["29", "out of memory"]


def test_one_that_is_too_slow() -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:  # both wait until the time is over
        slow = pool.submit(measure, training(STUCK), limit=3)
        slower = pool.submit(measure, training(STUCK.replace("range(4)", "range(1)")), limit=2)
        assert (slow.result().updates, slow.result().validation) == (2, None)
        with pytest.raises(InputError, match="1 updates in 2 s are too few to tell how long the"):
            slower.result()
    assert time.monotonic() - began < 30


def test_an_interruption_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def starting(*arguments: object, **options: object) -> subprocess.Popen[str]:
        started.append(start(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", starting)
    monkeypatch.setattr(measuring, "_times", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(training(STUCK))
    assert started[0].poll() == -9


def test_the_whole_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    plan = choose(29_000, 455_190, 61, gpus=0)
    measured = Measured(start=10, update=0.6, updates=20, validation=5)
    assert measured.total(plan) == pytest.approx(10 + 2_500 * 0.6 + 10 * 5)
    said = sentence(measured, plan)
    assert said.startswith("Measured: 0.6 s for an update (mean of 20) on 3 CPU cores; ")
    assert said.endswith("; the 2,500 updates will take about 26 min here.")

    large = choose(4_500_000, 135_000_000, 61, gpus=8)
    unvalidated = Measured(start=10, update=0.5, updates=20, validation=None)
    assert unvalidated.total(large) == 10 + 52_000 * 4 * 0.5
    assert sentence(unvalidated, large) == (
        "Measured: 0.5 s for a batch (mean of 20) on 8 GPUs; the 52,000 updates will take about "
        "28.9 hours here."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (100, "2 min"), (5_399, "90 min"), (7_200, "2.0 hours")]
    + [(172_000, "47.8 hours"), (864_000, "10.0 days")],
)
def test_times_to_come(seconds: float, text: str) -> None:
    assert about(seconds) == text
