"""Which runs speak for a claim, and whether they meet it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.experiments import records
from sut_fairseq.experiments.claims import Verdict
from tests.experiment_runs import FORWARD, run
from tests.unit.test_experiment_pages import as_size, verdict

BACKWARD = replace(FORWARD, split="backward", digest="d2")
BOTH = {"splits": ["forward", "backward"]}


def mean(runs: list[Path], **changes: Any) -> float:
    row = verdict(runs, **changes).row
    assert row is not None
    return row.mean


def change(path: Path, **changes: Any) -> Path:
    records.write_record(path, replace(records.read_record(path), **changes))
    return path


def errors(path: Path) -> Path:
    """The same run, with errors in place of percentages."""
    file = path / "test-by-depth.evaluation.json"
    file.write_text(file.read_text().replace('"percent"', '"absolute_error"'))
    return path


@pytest.mark.parametrize(("error", "met"), [(0.28, True), (0.2801, False), (0.1, True)])
def test_an_error_may_be_as_large_as_the_bar(error: float, met: bool, tmp_path: Path) -> None:
    found = verdict(
        [errors(run(tmp_path, "ndr", 1, {"all": error}))], measure="absolute_error", bar=0.28
    )
    assert found.verdict is (Verdict.REDUCED if met else Verdict.NOT_MET)


def test_of_equally_long_trainings_the_better_one_speaks(tmp_path: Path) -> None:
    """That with the smaller error, or with the larger share."""
    runs = [run(tmp_path, "ndr", 1, {"all": 40.0})]
    (tmp_path / "other").mkdir()
    other = run(tmp_path / "other", "ndr", 1, {"all": 60.0})
    runs.append(change(other, trainings={"": {"max-update": 5, "seed": 1, "dropout": 0.1}}))
    assert mean(runs) == 60
    assert mean([errors(path) for path in runs], measure="absolute_error") == 40


def test_how_many_seeds_matters_only_against_one(tmp_path: Path) -> None:
    """Two seeds of a longer training say more than three of a shorter one."""
    short = [run(tmp_path, "ndr", seed, {"all": 99.0}, updates=2) for seed in (1, 2, 3)]
    long = [run(tmp_path, "ndr", seed, {"all": 90.0}, updates=3) for seed in (1, 2)]
    assert mean([*short, *long]) == 90


def test_options_of_ones_own_are_not_the_papers(tmp_path: Path) -> None:
    path = as_size(run(tmp_path, "ndr", 1, {"all": 99.0}), "paper", updates=None)
    assert verdict([path]).verdict is Verdict.AT_SIZE
    change(path, options={"dropout": "0.1"})
    assert verdict([path]).verdict is Verdict.REDUCED


def test_an_ablation_is_another_model(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    assert verdict([change(path, without="halting")]).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize("changes", [{"updates": 9}, {"options": {"dropout": "0.1"}}])
def test_splits_of_different_trainings_have_no_mean(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    forward = run(tmp_path, "ndr", 1, {"all": 99.0})
    (tmp_path / "backward").mkdir()
    backward = run(tmp_path / "backward", "ndr", 1, {"all": 98.0}, data=BACKWARD)
    assert mean([forward, backward], **BOTH) == 98.5
    change(backward, **changes)
    assert verdict([forward, backward], **BOTH).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_groups_of_a_split_the_better_one_counts(first: int, tmp_path: Path) -> None:
    """Whichever is read first: here they differ in settings that are no options."""
    runs = []
    for name, value in (("one", 90.0), ("two", 99.0)):
        (tmp_path / name).mkdir()
        path = run(tmp_path / name, "ndr", 1, {"all": value})
        runs.append(change(path, trainings={"": {"max-update": 5, "seed": 1, "lr": name}}))
    (tmp_path / "backward").mkdir()
    backward = run(tmp_path / "backward", "ndr", 1, {"all": 97.0}, data=BACKWARD)
    assert mean([runs[first], runs[1 - first], backward], **BOTH) == 98
