"""The quick start at reduced size, and that a second run reuses the first."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


def quickstart(repository: Path, *arguments: object) -> str:
    command = ["bash", repository / "scripts" / "quickstart.sh", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [str(word) for word in command], cwd="/", env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def test_quickstart(repository: Path, tmp_path: Path) -> None:
    arguments = ("--out", tmp_path, "--updates", 4, "--limit", 24)
    first = quickstart(repository, *arguments)
    header, *rows = first.splitlines()[-3:]
    assert header.split()[0] == "alpha_threshold" and "MACs per sentence" in header
    assert [row.split()[0] for row in rows] == ["0.999", "0.7"]
    assert all("% of 24" in row for row in rows)
    (report,) = tmp_path.glob("seed-1-updates-4*/threshold-0.999.json")
    assert json.loads(report.read_text())["sentences"] == 24

    checkpoint = report.parent / "checkpoints" / "checkpoint_last.pt"
    written = checkpoint.stat().st_mtime_ns
    second = quickstart(repository, *arguments)
    assert second.splitlines()[-3:] == [header, *rows]
    assert checkpoint.stat().st_mtime_ns == written
    assert "training" not in second and "generating" not in second
