"""The matrix: its file, its models, and the table that is made of runs."""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_fairseq.analysis import untrained
from sut_fairseq.analysis.complexity import count
from sut_fairseq.cli import _experiment_figures, _experiment_matrix, experiment
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import grid, grid_results, keeping, pages, reading, records, results
from sut_fairseq.experiments.commands import Machine
from sut_fairseq.experiments.costs import Costs, read_costs, write_costs
from sut_fairseq.experiments.evaluating import Asked
from sut_fairseq.experiments.grid import read_grid
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.running import FailedTrainingsError, Trainer
from sut_fairseq.experiments.runs import Run
from tests import experiment_runs

GRID = read_grid()
# Mean tokens of the training pairs, and label and end where targets are labels.
LENGTHS = {
    "ctl-backward": (7, 2),
    "arithmetic": (21, 2),
    "logical_inference-full": (28, 2),
    "scan-length": (8, 12),
    "scan-addprim_turn_left": (8, 15),
    "cogs-exposures_30": (9, 47),
    "long_lookup_tables-long": (7, 6),
}
CTL = ("lstm", "ctl-backward")
COGS = "cogs-exposures_30"


def cell(
    folder: Path,
    row: str,
    column: str,
    groups: Mapping[str, float],
    *,
    seed: int = 1,
    **changes: Any,
) -> Path:
    """The folder of a run that has been trained, evaluated and counted."""
    here = folder / column
    here.mkdir(parents=True, exist_ok=True)
    data = changes.get("data", Data(folder=f"data-bin/{column}", digest="d"))
    path = experiment_runs.run(here, row, seed, {}, data=data, subset="unused")
    path = path.rename(here / f"{row}-seed-{seed}")
    record = records.read_record(path)
    changes = {"experiment": f"matrix/{column}", "updates": None, **changes}
    records.write_record(path, replace(record, **changes))
    for file in path.glob("*.evaluation.json"):
        file.unlink()
    usual = GRID.experiment(column).evaluation
    if groups:
        experiment_runs.evaluate(path, data, groups, Asked(subset=usual.subset, by=usual.by))
    write_costs(path, Costs(params=1_230_000, macs=4_560_000, examples=64))
    return path


def as_planned(run: Run) -> None:
    """Give the record of a cell the data and settings of this run."""
    trainings = {one.name: one.settings for one in run.trainings(Machine(0))}
    record = records.read_record(run.folder)
    records.write_record(run.folder, replace(record, data=run.data, trainings=trainings))


def drawn(folder: Path) -> dict[tuple[str, str], grid_results.Cell]:
    """The cells of a folder of runs."""
    groups = results.collect(records.find_runs([folder]))
    found = grid_results.table(GRID, groups, "small")
    return {(one.row, one.column): one for line in found.cells for one in line}


def test_the_file_and_the_experiments_agree() -> None:
    assert sorted(f"matrix/{name}" for name in GRID.columns) == reading.columns()
    assert not set(reading.columns()) & set(reading.known())
    for name in GRID.columns:
        one = GRID.experiment(name)
        assert list(one.models) == list(GRID.rows) and list(one.sizes) == ["small", "long"]


@pytest.mark.parametrize("column", list(GRID.columns))
def test_every_model_is_built(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same updates and batches, and about as many MACs for an example."""
    # The flags are those of a whole training.
    monkeypatch.setattr(untrained, "_check_of_model", lambda *_: None)
    src_len, tgt_len = LENGTHS[column]
    out, updates, macs = Path("unused"), set(), {}
    cells = grid.runs(
        GRID.only(None, [column]), size="small", seeds=[1], updates=None, out=out, only_listed=True
    )
    assert [one.choice.model for one in cells] == list(GRID.rows)
    for one in cells:
        trainings = one.trainings(Machine(0))
        settings = [part.settings for part in trainings]
        updates.add(str([(s["max-update"], s.get("batch-size"), s["lr"]) for s in settings]))
        words = trainings[-1].command()[2:]
        arch = words.index("--arch")
        flags = words[:arch] + words[arch + 2 :]
        torch.manual_seed(1)
        arch_name = str(settings[-1]["arch"])
        model, task = untrained.build(arch_name, 24, flags)
        batch = untrained.random_batch(model, task, src_len=src_len, tgt_len=tgt_len)
        if tgt_len == 2:
            batch["src_tokens"][:, 0] = task.source_dictionary.bos()
        batch["src_tokens"][:, -1] = task.source_dictionary.eos()
        macs[one.choice.model] = count(model, [batch], training=True).macs_full
    assert len(updates) == 1
    middle = statistics.median(macs.values())
    assert {row: number / middle for row, number in macs.items()} == {
        row: pytest.approx(1, abs=0.25) for row in macs
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rows", "lstn"], "rows lstm, transformer, rel, ut, sut, sut_fixed, ndr, "),
        (["--rows", "lstn"], "not `lstn` (did you mean `lstm`?)"),
        (["--columns", "scan"], "columns ctl-backward, arithmetic, logical_inference-full, "),
        (["--size", "paper"], "has the sizes small, long, not `paper`"),
        (["--columns", COGS], "make them with `sut-experiment prepare matrix/cogs-exposures_30`"),
        (["--draw"], "there are no runs in runs/matrix to draw: run them without --draw, or name"),
        (["--draw", "--dry-run"], "--draw trains nothing: leave --dry-run out."),
        (["--draw", "--updates", "9"], "--draw trains nothing: leave --updates out."),
    ],
)
def test_bad_input(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert experiment.main(["matrix", *arguments]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed and printed.count("\n") == 1


def test_a_list_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Each with what has become of it; nothing is run, and data may be missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / "ctl-backward").mkdir(parents=True)
    (tmp_path / "data-bin" / "ctl-backward" / "dict.src.txt").touch()
    out = tmp_path / "runs"
    part = GRID.only(["ndr", "sut", "ut", "rel"], ["ctl-backward"])
    planned = grid.runs(part, size="small", seeds=[1], updates=7, out=out)
    cell(out, "ndr", "ctl-backward", {"all": 1.0}, data=planned[0].data)
    cell(out, "sut", "ctl-backward", {})
    cell(out, "ut", "ctl-backward", {}, sessions=[])
    later = replace(experiment_runs.SESSION, ended="2026-11-22T12:00:00+00:00")
    cell(out, "rel", "ctl-backward", {"all": 1.0}, sessions=[later])  # trained on since
    for one in planned:
        as_planned(one)
    cell(out, "compositional", "ctl-backward", {"all": 1.0})
    line = ["matrix", "--columns", "ctl-backward", COGS, "--out", str(out), "--dry-run"]
    rows = ["ndr", "sut", "ut", "rel", "compositional"]
    assert experiment.main([*line, "--rows", *rows, "--updates", "7"]) == 0
    printed = capsys.readouterr().out
    for text in (
        "# ctl-backward, ndr, seed 1: finished\n",
        "# ctl-backward, sut, seed 1: to be evaluated\n",
        "# ctl-backward, ut, seed 1: to be trained\n",
        "# ctl-backward, rel, seed 1: to be evaluated\n",
        "# ctl-backward, compositional, seed 1: cannot be run: its folder holds a run of other ",
        f"# {COGS}, sut, seed 1: to be trained, once there is {tmp_path / 'data-bin' / COGS}\n",
    ):
        assert text in printed
    assert printed.count("fairseq-train ") == printed.count("--max-update 7") == 10


def test_a_dry_run_lists_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "matrix --rows lstm --columns arithmetic logical_inference-full --dry-run"
    assert experiment.main(line.split()) == 0
    assert capsys.readouterr().out.count("fairseq-train ") == 4


@pytest.mark.parametrize("size", ["small", "long"])
def test_train_and_matrix_put_a_cell_into_the_same_folder(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / COGS).mkdir(parents=True)
    (tmp_path / "data-bin" / COGS / "dict.src.txt").touch()
    out = tmp_path / "runs" / "matrix"
    (planned,) = grid.runs(GRID.only(["lstm"], [COGS]), size=size, seeds=[2], updates=None, out=out)
    line = ["train", "matrix/cogs-exposures_30", "--models", "lstm", "--seeds", "2", "--size", size]
    assert experiment.main([*line, "--dry-run"]) == 0
    assert f"--save-dir {planned.folder}/checkpoints" in capsys.readouterr().out


def test_finished_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the training is done for them all the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data-bin" / "ctl-backward").mkdir(parents=True)
    (tmp_path / "data-bin" / "ctl-backward" / "dict.src.txt").touch()
    part = GRID.only(["lstm", "ndr"], ["ctl-backward"])
    cells = grid.runs(part, size="small", seeds=[1, 2], updates=9, out=tmp_path / "runs")
    assert [(one.choice.model, one.seed) for one in cells] == [
        *(("lstm", 1), ("ndr", 1), ("lstm", 2), ("ndr", 2)),
    ]
    for one in cells[:2]:
        cell(tmp_path / "runs", one.choice.model, "ctl-backward", {"all": 1.0})
        as_planned(one)
    started, after = [], []

    def start(self: Trainer, command: list[str], *others: object) -> None:
        started.append(command[command.index("--save-dir") + 1])
        raise InputError("it would be trained")

    monkeypatch.setattr(Trainer, "_start", start)
    trainer = Trainer(Machine(0), jobs=1, say=lambda sentence: None)
    with pytest.raises(InputError, match="^it would be trained; it would be trained$"):
        trainer.train(cells, lambda one: after.append((one.choice.model, one.seed)))
    assert started == [str(one.folder / "checkpoints") for one in cells[2:]]
    assert after == [("lstm", 1), ("ndr", 1)]


def test_a_part_replaces_no_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of earlier calls stay in it; a call that is refused does not touch it."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs"
    cell(out, *CTL, {"9": 0.0, "all": 90.0})
    line = ["matrix", "--out", str(out), "--rows", "ndr", "--columns", "ctl-backward", COGS]
    assert experiment.main([*line, "--draw"]) == 0
    with open(out / "matrix.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["row"] for row in rows} == {"lstm", "ndr"}
    assert {row["column"] for row in rows} == {"ctl-backward", COGS}
    assert [row["mean"] for row in rows if row["row"] == "lstm"] == ["90.0000", ""]
    for name in ("ctl-backward", COGS):
        (tmp_path / "data-bin" / name).mkdir(parents=True)
        (tmp_path / "data-bin" / name / "dict.src.txt").touch()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    line[line.index("ndr")] = "lstm"  # a run of other settings is there
    assert experiment.main([*line, "--updates", "7"]) == 2
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_cells_outside_the_matrix_add_nothing_to_a_part() -> None:
    """Those of a model that its file no longer names, or of an experiment that is no column."""
    part = GRID.only(["ndr"], ["arithmetic"])
    assert part.with_those_of([("gone", "matrix/ctl-backward"), ("lstm", "ctl")], GRID) == part
    more = part.with_those_of([("lstm", "matrix/ctl-backward")], GRID)
    assert (more.rows.keys(), more.columns.keys()) == ({"ndr", "lstm"}, {"arithmetic", CTL[1]})


def test_updates_of_all_stages_count(tmp_path: Path) -> None:
    stages = {"short": {"max-update": 800}, "": {"max-update": 900}}
    cell(tmp_path, *CTL, {"all": 90.0}, trainings=stages)
    table = grid_results.table(GRID, results.collect(records.find_runs([tmp_path])), "small")
    assert next(row["updates"] for row in table.rows() if row["row"] == "lstm") == "1700"


def test_cells(tmp_path: Path) -> None:
    """Scores of all seeds, and why there is none."""
    for seed, score in ((1, 90.0), (2, 94.0)):
        cell(tmp_path, *CTL, {"9": 0.0, "all": score}, seed=seed)
    operators = {"6": 0.0, "7": 90.0, "8": 80.0, "9": 70.0, "10": 0.0, "all": 48.0}
    cell(tmp_path, "ndr", "logical_inference-full", operators)
    cell(tmp_path, "sut", "logical_inference-full", {"7": 90.0, "all": 90.0})
    cell(tmp_path, "sut", COGS, {"all": 3.0}, updates=5)
    cell(tmp_path, "ut", COGS, {})
    unfinished = replace(records.read_record(tmp_path / COGS / "ut-seed-1").sessions[0])
    stopped = [replace(unfinished, outcome="interrupted")]
    cell(tmp_path, "ndr", COGS, {"all": 3.0}, sessions=stopped)
    cell(tmp_path, "rel", COGS, {"all": 99.0}, size="long")
    sizes = ["--sizes 900 9 9 9"]
    other = Data(folder="data-bin/arithmetic", dataset="arithmetic", digest="d", options=sizes)
    cell(tmp_path, "ndr", "arithmetic", {"7": 9.0, "8": 9.0, "all": 9.0}, data=other)
    length = Data(folder="data-bin/cogs-exposures_30", dataset="scan", split="length", digest="d")
    cell(tmp_path, "lstm", COGS, {"all": 99.0}, data=length)
    once = Data(folder="data-bin/cogs", dataset="cogs", digest="d")
    cell(tmp_path, "transformer", COGS, {"all": 2.0}, data=once)
    usual = replace(once, split="exposures_30", options=["--exposures 30"])
    cell(tmp_path, "compositional", COGS, {"all": 2.0}, data=usual)
    found = drawn(tmp_path)
    assert str(found[CTL]) == "92.0 ± 2.8" and found[CTL].scores == {1: 90.0, 2: 94.0}
    assert str(found["ndr", "logical_inference-full"]) == "80.0"
    assert found["sut", "logical_inference-full"].mean is None  # it lacks two of three groups
    sut = found["sut", COGS]
    assert (str(sut), sut.remark) == ("3.0†", "5 updates (`--updates`)")
    assert found["ndr", "arithmetic"].remark == "data made with --sizes 900 9 9 9"
    assert found["lstm", COGS].remark == "other data (scan length)"
    assert found["transformer", COGS].remark == "data made with no options"
    assert found["compositional", COGS].remark == ""
    assert str(found["ut", COGS]) == "not evaluated"
    assert str(found["ndr", COGS]) == "not finished"
    assert str(found["rel", COGS]) == "not run"  # in this size


def test_the_best_of_a_column_is_bold(tmp_path: Path) -> None:
    """All of several equal ones, but none of a training that was cut short."""
    for row, score in (("lstm", 99.96), ("ut", 100.0), ("sut", 98.0)):
        cell(tmp_path, row, "ctl-backward", {"all": score})
    cell(tmp_path, "ndr", "ctl-backward", {"all": 100.0}, updates=5)
    groups = results.collect(records.find_runs([tmp_path]))
    text = grid_results.markdown(grid_results.table(GRID, groups, "small"))
    lines = [line.split("|") for line in text.splitlines() if "| not run" in line]
    shown = {line[1].strip(): line[2].strip() for line in lines}
    assert [shown[name] for name in ("LSTM", "UT", "SUT", "NDR")] == [
        *("**100.0**", "**100.0**", "98.0", "100.0†"),
    ]


def test_cells_of_other_data_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`data-prep/ctl.sh --out data-bin/ctl-backward` makes forward data."""
    monkeypatch.chdir(tmp_path)
    data = Data(folder="data-bin/ctl-backward", dataset="ctl", split="forward", digest="d")
    monkeypatch.setattr(grid, "_data", lambda experiment: data)
    part = GRID.only(["ndr"], ["ctl-backward"])
    sentence = r"other data than those of the column: .*ctl-backward \(ctl, split forward\)"
    with pytest.raises(InputError, match=sentence):
        grid.runs(part, size="small", seeds=[1], updates=None, out=tmp_path)


def test_sizes_have_folders_of_their_own() -> None:
    part = GRID.only(["ndr"], [COGS])
    folders = [
        grid.runs(part, size=size, seeds=[1], updates=None, out=Path("m"), only_listed=True)[0]
        for size in ("small", "long")
    ]
    assert [one.folder.name for one in folders] == ["ndr-seed-1", "ndr-long-seed-1"]


def test_a_cell_that_cannot_be_evaluated_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: Run) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(_experiment_matrix, "_measure", fail)
    monkeypatch.setattr(_experiment_matrix, "_is_measured", lambda *of_run: False)
    monkeypatch.setattr(Trainer, "_stage", lambda *arguments: "")
    data = Data(folder="data-bin/cogs-exposures_30", dataset="cogs", digest="d")
    monkeypatch.setattr(grid, "_data", lambda experiment: data)
    part = GRID.only(["lstm", "ndr"], [COGS])
    cells = grid.runs(part, size="small", seeds=[1], updates=None, out=tmp_path / "m")

    def train(runs: list[Run], arguments: object, say: Any, finish: Any) -> None:
        Trainer(Machine(0), jobs=1, say=say).train(runs, finish)

    monkeypatch.setattr(_experiment_matrix, "train", train)
    with pytest.raises(FailedTrainingsError) as caught:
        _experiment_matrix._run(cells, argparse.Namespace())
    reason = "seed 1 could not be evaluated: RuntimeError: no such operator"
    assert str(caught.value) == f"{COGS}, lstm, {reason}; {COGS}, ndr, {reason}"


def test_whole_trainings_come_first(tmp_path: Path) -> None:
    cell(tmp_path / "a", *CTL, {"all": 99.0}, updates=5)
    cell(tmp_path / "b", *CTL, {"all": 12.0}, trainings={"": {"max-update": 2500}})
    assert str(drawn(tmp_path)[CTL]) == "12.0"


def test_pages_of_kept_cells(tmp_path: Path) -> None:
    """Records that were kept make a page with picture and rows, where nothing is missing."""
    path = cell(tmp_path / "runs", *CTL, {"9": 0.0, "all": 90.0})
    kept = keeping.keep(path, tmp_path / "kept")
    assert kept == tmp_path / "kept" / "matrix" / "ctl-backward" / "ctl-backward-lstm-seed-1"
    assert read_costs(kept) == read_costs(path)
    written = pages.write(
        results.collect([kept]),
        tmp_path,
        replace(experiment_runs.DRAW_NOTHING, matrix=_experiment_figures.draw_matrix),
    )
    assert [one.name for one in written] == ["index.md", "matrix.md"]
    assert (tmp_path / "pictures" / "matrix.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "matrix.md").read_text()
    lines = page.splitlines()
    assert "| LSTM | **90.0** |" + " not run |" * 6 in lines
    assert "| LSTM | 4.6; 1.23; 5 s |" + "  |" * 6 in lines
    assert page.count("| ctl-backward | lstm | ctl-backward-lstm-seed-1 | 1 |") == 1
    with open(tmp_path / "matrix.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(GRID.rows) * len(GRID.columns)
    assert rows[0] == {
        **dict.fromkeys(grid_results.COLUMNS, ""),
        "row": "lstm",
        "column": "ctl-backward",
        "size": "small",
        "updates": "5",
        "seeds": "1",
        "each": "90.0000",
        "mean": "90.0000",
        "seconds": "5.0",
        "parameters": "1230000",
        "MACs": "4560000",
    }
    assert {row["remark"] for row in rows[1:]} == {"not run"}
