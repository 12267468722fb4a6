"""The tables of the papers' numbers and ours: what they say of our trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.experiments import front_table, reading, records, results
from sut_fairseq.experiments.claims import check_claims
from tests.experiment_runs import COMPUTER, SESSION, run

CTL = reading.read("ctl")


def rows(path: Path, **changes: Any) -> tuple[list[str], str]:
    """The cells of the row that a run stands in, and the text on its size."""
    record = replace(records.read_record(path), **changes)
    records.write_record(path, record)
    groups = results.collect([path])
    found = check_claims([groups[0].experiment], groups)
    _, table, *folded = front_table.sections(found, ["ctl"])
    row = next(line for line in table.splitlines() if "| 98.50 |" in line)
    return [cell.strip() for cell in row.strip("|").split("|")], "".join(folded)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return run(tmp_path, "ndr", 1, {"all": 98.5})


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, "5 updates"),
        ({"batch-size": 64}, "5 updates of 64"),
        ({"max-tokens": 4096, "batch-size": 64, "update-freq": 2}, "5 updates of 8,192 tokens"),
        ({"batch-size": 64, "update-freq": "[2,4]"}, "5 updates"),
        ({"max-update": None, "max-epoch": 7, "batch-size": 64}, "7 epochs"),
    ],
)
def test_length(options: dict[str, Any], length: str, path: Path) -> None:
    trainings = {"": {"max-update": 5, "seed": 1, **options}}
    if options.get("max-update", 5) is None:
        del trainings[""]["max-update"]
    cells, _ = rows(path, trainings=trainings)
    assert cells[6] == f"states of 128, {length}"


def test_earlier_stages(path: Path) -> None:
    stages = {"short": {"max-update": 3000}, "": {"max-update": 5, "batch-size": 64}}
    cells, _ = rows(path, trainings=stages)
    assert cells[6] == "states of 128, 5 updates of 64, after 3,000 in earlier stages"


def test_several_gpus(path: Path) -> None:
    """The options have the batch of one of them."""
    session = replace(SESSION, computer=replace(COMPUTER, gpus=["H100", "H100"]))
    trainings = {"": {"max-update": 5, "batch-size": 64}}
    cells, _ = rows(path, trainings=trainings, sessions=[session])
    assert cells[6] == "states of 128, 5 updates"


def test_the_papers_size(path: Path) -> None:
    """Has no length unless it was changed."""
    cells, _ = rows(path, size="paper", updates=None)
    assert cells[4:7] == ["🟢", "1", "the paper's"]
    cells, _ = rows(path, size="paper", updates=5)
    assert cells[4:7] == ["🟡", "1", "the paper's, 5 updates"]


def test_a_size_of_the_users_own_without_a_description(path: Path, tmp_path: Path) -> None:
    own = tmp_path / "ctl.yaml"
    own.write_text("extends: ctl\nsizes: {mini: {settings: {max-update: 5}}}\n", encoding="utf-8")
    cells, text = rows(path, experiment=str(own), size="mini", updates=None)
    assert cells[6] == "size `mini`, 5 updates"
    assert "**ctl: forward, data router.** 1 seed:\n" in text
    _, text = rows(path, options={"lr": "1"})
    assert "**ctl: forward, data router.** With `--lr 1`; 1 seed:\n" in text


def test_marks_have_words_on_the_page_of_an_experiment(path: Path) -> None:
    groups = results.collect([path])
    found = [one for one in check_claims([CTL], groups) if one.row is not None]
    *_, row = front_table.table(found).splitlines()
    assert row.startswith("| forward, data router | 100 | 98.50 | ")
    assert "| 🟡 met at a reduced size | 1 | states of 128, 5 updates |" in row
