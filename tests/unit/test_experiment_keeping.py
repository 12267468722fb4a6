"""What is kept of runs for good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.cli import _experiment_parser, experiment
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import curves, keeping, preparing, reading, records, results
from sut_fairseq.experiments.evaluating import Asked, read_evaluations
from sut_fairseq.experiments.settings import Choice
from tests.experiment_runs import FORWARD, SESSION, evaluate, run
from tests.unit.test_experiment_curves import LOG


def test_the_example_of_keep_names_a_run_as_train_does() -> None:
    scan = reading.read("scan")
    data = replace(FORWARD, folder=f"/data/{preparing.folder_of(scan, None).name}")
    choice = Choice("sut", next(iter(scan.sizes)))
    folder = experiment._run_folder(scan, choice, 1, data, None, several=False)
    assert f"keep {folder} --into kept" in _experiment_parser._EXAMPLES["keep"]


def test_a_kept_run_is_read_like_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables are the same, its curve is there without the log, and no folder is named."""
    monkeypatch.chdir(tmp_path)
    data = replace(FORWARD, folder=str(tmp_path / "data-bin" / "ctl-forward"))
    path = run(tmp_path, "ndr", 1, {"all": 90.0}, data=data)
    (path / "train.log").write_text(LOG)
    kept = keeping.keep(path, tmp_path / "kept")
    assert kept == tmp_path / "kept" / "ctl" / f"ctl-forward-{path.name}"
    assert {one.name for one in kept.iterdir()} == {
        "run.json",
        "curve.csv",
        "test-by-depth.evaluation.json",
    }
    assert str(tmp_path) not in "".join(one.read_text() for one in kept.iterdir())
    assert records.read_record(kept) == replace(records.read_record(path), data=FORWARD)
    tables = [results.table(results.collect([one]), [], True) for one in (path, kept)]
    assert [rows[0].pop("first run") for rows in tables] == [path.name, kept.name]
    assert tables[0] == tables[1]
    assert curves.read_curve(kept) == curves.read_curve(path) != []
    assert keeping.keep(kept, tmp_path / "kept") == kept
    (path / "run.json").write_text((path / "run.json").read_text().replace("finished", "killed"))
    with pytest.raises(InputError, match="is not finished: finish its training"):
        keeping.keep(path, tmp_path / "kept")


def test_groups_that_look_like_paths_are_kept_as_they_are(tmp_path: Path) -> None:
    groups = {"/a/b/c": 64.0, "/d/b/c": 54.0, "all": 60.0}
    path = run(tmp_path, "ndr", 1, groups)
    (one,) = read_evaluations(keeping.keep(path, tmp_path / "kept"), records.read_record(path))
    assert one.values() == groups


def test_a_run_is_kept_again_as_it_is_now(tmp_path: Path) -> None:
    """What it has no longer goes, what somebody put beside it stays."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    evaluate(path, FORWARD, {"all": 50.0}, Asked(by="depth", steps=6))
    kept = keeping.keep(path, tmp_path / "kept")
    (kept / "note.md").write_text("Good.")
    (path / "test-by-depth-6-steps.evaluation.json").unlink()
    evaluate(path, FORWARD, {"all": 91.0}, Asked(by="depth"))
    assert keeping.keep(path, tmp_path / "kept") == kept
    assert [one.values() for one in read_evaluations(kept, records.read_record(kept))] == [
        {"all": 91.0}
    ]
    assert (kept / "note.md").is_file()


def test_a_curve_outlives_the_log(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    (path / "train.log").write_text(LOG)
    curve = curves.read_curve(keeping.keep(path, tmp_path / "kept"))
    (path / "train.log").unlink()
    assert curves.read_curve(keeping.keep(path, tmp_path / "kept")) == curve != []


def test_runs_on_drawn_data_are_kept_by_their_splits(tmp_path: Path) -> None:
    """Which have no folder."""
    kept = []
    for split in ("all", "held_out"):
        (tmp_path / split).mkdir()
        data = replace(FORWARD, folder="", split=split, digest=split)
        path = run(tmp_path / split, "ndr", 1, {"all": 90.0}, data=data)
        kept.append(keeping.keep(path, tmp_path / "kept").name)
    assert kept == ["all-ndr-1-5", "held_out-ndr-1-5"]


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"trainings": {"": {"lr": 2}}},
        {"data": replace(FORWARD, digest="d")},
        {"sessions": [replace(SESSION, started="2026-11-23T10:00:00+00:00")]},  # a repetition
    ],
)
def test_another_run_of_the_same_name_is_not_mixed_in(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    runs = []
    for search in ("x", "y"):
        (tmp_path / search).mkdir()
        runs.append(run(tmp_path / search, "ndr", 1, {"all": 90.0}))
    records.write_record(runs[1], replace(records.read_record(runs[1]), **changes))
    kept = keeping.keep(runs[0], tmp_path / "kept")
    before = {path: path.read_bytes() for path in kept.iterdir()}
    with pytest.raises(InputError, match="ctl-forward-ndr-1-5 holds another run than"):
        keeping.keep(runs[1], tmp_path / "kept")
    assert {path: path.read_bytes() for path in kept.iterdir()} == before


def test_a_run_whose_length_was_changed_replaces_what_was_kept_of_it(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    record = records.read_record(path)
    assert record.sessions
    kept = keeping.keep(path, tmp_path / "kept")
    longer = replace(record, trainings={"": {"max-update": 9}}, planned_before=["5 updates"])
    records.write_record(path, longer)
    assert keeping.keep(path, tmp_path / "kept") == kept
    assert records.read_record(kept).length == "9 updates, planned for 5 updates before"
    begun = replace(record.sessions[0], started="2001-01-01T00:00:00+00:00")
    records.write_record(path, replace(longer, planned_before=["7 updates"], sessions=[begun]))
    with pytest.raises(InputError, match="holds another run than"):
        keeping.keep(path, tmp_path / "kept")


def test_a_run_that_went_on_replaces_what_was_kept_of_it(tmp_path: Path) -> None:
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    keeping.keep(path, tmp_path / "kept")
    later = replace(SESSION, started="2026-11-23T10:00:00+00:00")
    record = replace(records.read_record(path), sessions=[SESSION, later])
    records.write_record(path, record)
    kept = keeping.keep(path, tmp_path / "kept")
    assert [one.started for one in records.read_record(kept).sessions] == [
        SESSION.started,
        later.started,
    ]


def test_runs_are_kept_though_others_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        run(tmp_path, "ndr", seed, {"all": 90.0})
    record = tmp_path / "ndr-1-5" / "run.json"
    record.write_text(record.read_text().replace("finished", "killed"))
    assert experiment.main(["keep", str(tmp_path), "--into", str(tmp_path / "kept")]) == 2
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'kept' / 'ctl' / 'ctl-forward-ndr-2-5'}\n"
    assert "ndr-1-5 is not finished" in shown.err
    assert shown.err.endswith("1 of 2 runs could not be kept, see above.\n")


def test_a_kept_run_names_the_users_own_experiment_so_that_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the working folder if the file is below it, by its whole path if not."""
    path = run(tmp_path, "ndr", 1, {"all": 90.0})
    file = tmp_path / "a" / "mine.yaml"
    records.write_record(path, replace(records.read_record(path), experiment=str(file)))
    for folder, name in ((tmp_path / "other", str(file)), (tmp_path, "a/mine.yaml")):
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        kept = keeping.keep(path, folder / "kept")
        assert kept.parent == folder / "kept" / "mine"
        assert records.read_record(kept).experiment == name
    keeping.keep(path, tmp_path / "other" / "kept")  # the same run, from another folder

    # Kept or not, runs of one file belong together.
    file.parent.mkdir()
    file.write_text(reading.read("ctl").path.read_text(encoding="utf-8"), encoding="utf-8")
    second = run(tmp_path, "ndr", 2, {"all": 80.0})
    records.write_record(second, replace(records.read_record(second), experiment=str(file)))
    (group,) = results.collect([kept, second])
    assert [record.seed for record in group.runs.values()] == [1, 2]


def test_of_a_folder_elsewhere_two_parts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    data = replace(FORWARD, folder="/home/someone/data-bin/ctl-forward")
    kept = keeping.keep(run(tmp_path, "ndr", 1, {"all": 90.0}, data=data), tmp_path / "kept")
    assert records.read_record(kept).data.folder == "data-bin/ctl-forward"
