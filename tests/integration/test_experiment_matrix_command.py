"""`sut-experiment matrix` from data to the table: real trainings, one killed, all tiny."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest

from sut_fairseq.cli import experiment
from sut_fairseq.experiments.costs import read_costs
from sut_fairseq.experiments.records import read_record
from tests.integration.commands import run, start, words

NAME = "sut-experiment"
MATRIX = "matrix --rows lstm sut --columns arithmetic scan-length --updates 2 --out cells"


@pytest.mark.slow
def test_two_models_on_two_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed within the second cell, then finished; then drawn, and kept for the pages."""
    monkeypatch.chdir(tmp_path)
    sizes = ["--sizes", "200", "20", "10", "10"]
    assert experiment.main(["prepare", "matrix/arithmetic", "--", *sizes]) == 0
    assert experiment.main(["prepare", "matrix/scan-length", "--", "--limit", "24"]) == 0
    cells = {
        (row, column): tmp_path / "cells" / column / f"{row}-seed-1"
        for column in ("arithmetic", "scan-length")
        for row in ("lstm", "sut")
    }
    second = cells["sut", "arithmetic"]
    with start(NAME, *words(MATRIX), cwd=tmp_path, own_group=True) as running:
        assert running.wait_for((second / "up-to-13" / "train.log").exists)
        os.killpg(running.pid, 9)
    first_record = (cells["lstm", "arithmetic"] / "run.json").read_text()
    assert read_record(second).sessions and not read_record(second).finished()

    done = run(NAME, *words(MATRIX), cwd=tmp_path).stdout
    assert "already trained: lstm, seed 1" in done and "4 of 4 runs are finished" in done
    assert (cells["lstm", "arithmetic"] / "run.json").read_text() == first_record
    outcomes = [one.outcome for one in read_record(second).sessions]
    assert outcomes[0] == "killed" and outcomes[-2:] == ["finished", "finished"]
    for folder in cells.values():
        costs = read_costs(folder)
        assert read_record(folder).finished() and costs is not None
        assert costs.params > 100_000 and costs.macs > 100_000
    rows = _rows(tmp_path / "cells" / "matrix.csv")
    assert {(row["row"], row["column"]) for row in rows} == set(cells)
    assert all(0 <= float(row["mean"]) <= 100 and float(row["seconds"]) > 0 for row in rows)
    assert (tmp_path / "cells" / "matrix.png").stat().st_size > 0
    assert "2 updates (`--updates`)" in (tmp_path / "cells" / "matrix.md").read_text()

    # Only what is missing is made again, and without training.
    (cells["sut", "scan-length"] / "test-by-target_length.evaluation.json").unlink()
    again = run(NAME, *words(MATRIX), cwd=tmp_path).stdout
    assert again.count("already trained: ") == 6  # with a stage of two of them
    assert again.count("evaluating ") == 1 and "] training " not in again
    run(NAME, *words("keep cells --into kept"), cwd=tmp_path)
    shutil.rmtree(tmp_path / "cells")
    run(NAME, *words("matrix --draw --out kept"), cwd=tmp_path)
    assert len(_rows(tmp_path / "kept" / "matrix.csv")) == 70
    run(NAME, *words("report kept --pages pages"), cwd=tmp_path)
    assert "| SUT | not run | " in (tmp_path / "pages" / "matrix.md").read_text()


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
