"""The quick start at reduced size, and that a second run reuses the first."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.forking import forking


def quickstart(repository: Path, *arguments: object, threads: str = "1", **environment: str) -> str:
    command = ["bash", repository / "scripts" / "quickstart.sh", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": threads, **environment}
    process = subprocess.run(
        [str(word) for word in command], cwd="/", env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_quickstart(repository: Path, tmp_path: Path) -> None:
    """Its commands are run by forks; below they start as they do for a user."""
    arguments = ("--out", tmp_path, "--updates", 2, "--limit", 8)
    first = quickstart(repository, *arguments, **forking())
    header, *rows = first.splitlines()[-6:-3]
    assert header.split()[0] == "alpha_threshold" and "MACs per sentence" in header
    assert [row.split()[0] for row in rows] == ["0.999", "0.7"]
    assert all("% of 8" in row for row in rows)
    (report,) = tmp_path.glob("seed-1-updates-2*/threshold-0.999.macs.json")
    assert json.loads(report.read_text())["sentences"] == 8

    checkpoint = report.parent / "checkpoints" / "checkpoint_last.pt"
    written = checkpoint.stat().st_mtime_ns
    second = quickstart(repository, *arguments)
    assert second.splitlines()[-6:-3] == [header, *rows]
    assert checkpoint.stat().st_mtime_ns == written
    assert "training" not in second and "generating" not in second


def test_bad_options(repository: Path) -> None:
    for options, sentence in (
        (["--updates", "many"], "take whole numbers from 1, not `many`."),
        (["--updates", "0"], "take whole numbers from 1, not `0`."),
        (["--seed"], "--seed needs a value; --help explains every option."),
        (["--size", "3"], "unknown option `--size`; --help lists the options there are."),
    ):
        script = str(repository / "scripts" / "quickstart.sh")
        process = subprocess.run(["bash", script, *options], capture_output=True, text=True)
        assert process.returncode == 1
        assert process.stderr.startswith("quickstart.sh: error: ")
        assert process.stderr.endswith(sentence + "\n") and process.stderr.count("\n") == 1


@pytest.mark.slow
def test_reaches_the_promised_score(repository: Path, tmp_path: Path) -> None:
    """The header of the script: at least 95 % of all 4,182 held-out commands, in 10 minutes."""
    start = time.monotonic()
    quickstart(repository, "--out", tmp_path, threads="2")
    minutes = (time.monotonic() - start) / 60
    (result,) = tmp_path.glob("seed-1-*/threshold-0.999.exact_match.json")
    score = json.loads(result.read_text())
    print(f"{score} after {minutes:.1f} minutes")
    assert score["scored"] == 4182
    assert score["exact_match"] >= 95
