"""Records of runs: found, read, and damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import records, report, results
from sut_fairseq.experiments.schema import Settings
from tests.experiment_runs import CODE, COMPUTER, SESSION, run


def test_folders_without_runs(tmp_path: Path) -> None:
    one = run(tmp_path, "ndr", 1, {"all": 95})
    assert records.find_runs([tmp_path, one]) == [one]
    with pytest.raises(InputError, match="is not the folder of a run, nor are there any in it"):
        records.find_runs([tmp_path / "nothing"])
    (one / records.RECORD).write_text("{")
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        records.read_record(one)


def test_runs_behind_links(tmp_path: Path) -> None:
    """Each is found once, though a link leads in a circle."""
    path = run(tmp_path, "ndr", 1, {"all": 99.0})
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "elsewhere").symlink_to(path)
    (tmp_path / "runs" / "circle").symlink_to(tmp_path / "runs")
    found = records.find_runs([tmp_path / "runs"])
    assert [one.resolve() for one in found] == [path]
    assert records.holds_runs(tmp_path / "runs")


@pytest.mark.parametrize(
    ("row", "damage"),
    [
        ({"percent": "64,88"}, "'64,88'"),
        ({"sentences": "336.0"}, "'336.0'"),
        ({"group": None}, "group"),
        ({"percent": ""}, "no results"),
    ],
)
def test_rows_that_were_edited(row: dict[str, str | None], damage: str, tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    file = path / "test-by-depth.evaluation.json"
    document = json.loads(file.read_text())
    document["rows"][0] |= row
    document["rows"][0] = {
        key: cell for key, cell in document["rows"][0].items() if cell is not None
    }
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=f"{file} is damaged .*{damage}.*evaluate the run again"):
        results.table(results.collect([path]), [], True)


def test_batches_are_counted_as_they_are_limited(tmp_path: Path) -> None:
    """In tokens, where both limits are given: there the number of sentences seldom matters."""
    record = records.read_record(run(tmp_path, "ndr", 1, {"all": 95}))
    for limits, amount in (
        ({"max-tokens": 100, "batch-size": 7}, 500),
        ({"batch-size": 7}, 35),
        ({}, 5),
    ):
        own = replace(record, trainings={"": {"max-update": 5, **limits}})
        assert own.amount == amount


def test_lengths_in_their_order(tmp_path: Path) -> None:
    """Those that were planned first come first."""
    record = records.read_record(run(tmp_path, "ndr", 1, {"all": 95}))
    record.planned_before[:] = ["500 updates", "300 updates", "900 updates"]
    told = "planned for 500 updates, then for 300 updates, then for 900 updates before"
    assert record.length.endswith(f", {told}")


def test_a_record_without_a_training(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    records.write_record(path, replace(records.read_record(path), trainings={}))
    with pytest.raises(InputError, match=f"{path / 'run.json'} is damaged .* make the run again"):
        results.collect([path])


def test_a_length_that_fairseq_refused_hides_no_other_run(tmp_path: Path) -> None:
    run(tmp_path, "ndr", 1, {"all": 90.0})
    path = run(tmp_path, "ndr", 2, {"all": 90.0})
    record = records.read_record(path)
    settings = {**record.trainings[""], "max-update": "1e3"}
    records.write_record(path, replace(record, trainings={"": settings}))
    assert records.read_record(path).all_updates is None
    page = report.markdown(results.collect(records.find_runs([tmp_path])))
    assert "1e3 updates" in page and "5 updates" in page


def test_options_of_the_machine_are_no_settings(tmp_path: Path) -> None:
    """Of older records, in which they stand, neither."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record = records.read_record(path)
    more: Settings = {"cuda-graphs": 8}
    older = replace(record, options=more, trainings={"": {**record.trainings[""], **more}})
    records.write_record(path, older)
    assert older.key() != record.key() and records.read_record(path) == record


def test_a_run_that_moved_to_another_machine(tmp_path: Path) -> None:
    gpu = replace(COMPUTER, gpus=["NVIDIA H100"])
    later = replace(CODE, commit="fedcba9876543210", changed=False)
    moved = [replace(SESSION, computer=gpu), SESSION, replace(SESSION, code=later)]
    record = records.read_record(run(tmp_path, "ndr", 1, {"all": 90.0}))
    record = replace(record, sessions=moved)
    assert record.computers == f"{gpu}; then {COMPUTER}"
    assert record.codes == f"{CODE}; then {later}"
    cells = report.run_cells(Path("run"), record)
    assert cells[4] == record.codes and cells[6] == record.computers
