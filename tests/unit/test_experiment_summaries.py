"""Summaries: tables and figures that put models or data side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sut_fairseq.cli import experiment
from sut_fairseq.experiments import pages, reading, records, report, results, summaries
from sut_fairseq.experiments.evaluating import Asked, Evaluated, write
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.records import Record
from tests.experiment_runs import CODE, DRAW_NOTHING, EVALUATED, SESSION

SETS = ("interpolation", "long_1")


def looked_up(folder: Path, model: str, split: str, seed: int, loss: float, **more: Any) -> Path:
    """The folder of a run on long lookup tables, with the measures of gold attention."""
    data = Data(folder=split, dataset="long_lookup_tables", split=split, digest=split)
    record = Record(
        experiment="long_lookup_tables",
        model=model,
        size="paper",
        seed=seed,
        data=data,
        trainings={"": {"max-epoch": 50, "seed": seed, **more}},
        options=more,
        sessions=[SESSION],
    )
    rows = [
        {
            "group": name,
            "sentences": "10",
            "percent": f"{90 - number}",
            "before_eos": f"{95 - number}",
            "attention_loss": f"{loss + number}",
        }
        for number, name in enumerate((*SETS, "all"))
    ]
    path = folder / f"{split}-{model}-{seed}{'-more' if more else ''}"
    return keep(path, record, Asked(by="set"), rows)


def keep(path: Path, record: Record, asked: Asked, rows: list[dict[str, str]]) -> Path:
    """The folder of a run that has been evaluated."""
    path.mkdir()
    records.write_record(path, record)
    evaluated = Evaluated(
        asked=asked,
        data=record.data,
        measure="exact match",
        rows=rows,
        code=CODE,
        when=EVALUATED,
    )
    write(path, asked.name(), evaluated)
    return path


def test_measures_have_rows_and_tables_of_their_own(tmp_path: Path) -> None:
    groups = results.collect([looked_up(tmp_path, "mix", "long", 1, 2.0)])
    rows = results.table(groups, [], by_group=False)
    assert [(row["measure"], row["mean"]) for row in rows] == [
        ("percent", "88.00"),
        ("before_eos", "93.00"),
        ("attention_loss", "4.00"),
    ]
    page = report.markdown(groups)
    assert "Set `test`, right before `<eos>`, in per cent:\n\n| set | sentences | seed 1 |" in page
    assert "Set `test`, attention loss, in squared source words:" in page


def test_summaries_put_models_and_data_side_by_side(tmp_path: Path) -> None:
    """A mean over data needs all of them, and uses the seeds that all of them have."""
    runs = [
        looked_up(tmp_path, "mix", split, seed, loss + seed)
        for split, loss in (("long", 1.0), ("reverse", 2.0), ("noisy", 6.0))
        for seed in (1, 2)
    ]
    runs.append(looked_up(tmp_path, "mix", "long", 3, 0.0))
    runs.append(looked_up(tmp_path, "additive", "noisy", 1, 0.0))
    # Of other settings: not what the paper's numbers are for.
    runs.append(looked_up(tmp_path, "transformer", "long", 1, 0.0, lr=1))
    found = {table.summary.title: table for table in summaries.tables(results.collect(runs))}
    assert [*found] == ["Table 3", "Figure 8", "Stop gate"]
    (line,) = found["Table 3"].lines
    assert (line.model, line.split) == ("mix", "")
    assert [row.results for row in line.rows] == [{1: 4.0, 2: 5.0}, {1: 5.0, 2: 6.0}]
    assert [row.paper for row in line.rows] == [2.1, 2.2]
    assert found["Table 3"].cells()[1] == {
        "model": "mix",
        "split": "",
        "group": "long_1",
        "seeds": "1 2",
        "each": "5.0000 6.0000",
        "mean": "5.5000",
        "deviation": "0.7071",
        "paper": "2.2",
    }
    shown = [(one.model, one.split, one.rows[0].mean) for one in found["Figure 8"].lines]
    assert shown == [("mix", "reverse", 95.0), ("mix", "noisy", 95.0), ("additive", "noisy", 95.0)]
    page = report.markdown(results.collect(runs))
    assert page.startswith(
        "## long_lookup_tables, Table 3\n\n"
        "Attention loss, in squared source words; mean over `long`, `reverse`, `noisy` (mean and "
        "deviation of all seeds, in brackets the paper's):\n\n"
        "| model | number of seeds | interpolation | long_1 |\n"
        "| --- | --- | --- | --- |\n"
        "| mix | 2 | 4.50 ± 0.71 (2.1) | 5.50 ± 0.71 (2.2) |\n"
    )
    assert "| additive | noisy | 1 | 95.00 | 94.00 |" in page
    figures = tmp_path / "figures"
    assert experiment.main(["report", *map(str, runs), "--figures", str(figures)]) == 0
    for name in ("table-3", "figure-8", "stop-gate"):
        base = figures / f"long_lookup_tables-{name}"
        assert base.with_suffix(".png").stat().st_size > 1000
        assert base.with_suffix(".csv").read_text().startswith("model,split,group,seeds,each,mean")
    pages.write(results.collect(runs), tmp_path, DRAW_NOTHING)
    file = "pictures/long_lookup_tables-table-3.csv"
    assert (tmp_path / file).read_bytes() == (figures / Path(file).name).read_bytes()
    assert f"table-3.png)\n\n[CSV]({file})\n" in (tmp_path / "long_lookup_tables.md").read_text()


def test_unfinished_trainings_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [looked_up(tmp_path, "transformer_xl", "noisy", seed, 0.0) for seed in (1, 2)]
    record = records.read_record(runs[1])
    unfinished = replace(record, sessions=[replace(SESSION, outcome="killed")])
    records.write_record(runs[1], unfinished)
    tables = summaries.tables(results.collect(runs))
    assert [{*table.lines[0].rows[0].results} for table in tables] == [{1}]
    alone = results.collect(runs[1:])
    assert not summaries.tables(alone)
    assert experiment.main(["report", str(runs[1]), "--figures", str(tmp_path / "figures")]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("--figures: nothing to draw.")
    assert said.out == report.markdown(alone) and not (tmp_path / "figures").exists()


@pytest.mark.parametrize("changes", [{"without": "halting"}, {"size": "small"}, {"model": "mix"}])
def test_runs_that_a_summary_does_not_show(changes: dict[str, Any], tmp_path: Path) -> None:
    path = looked_up(tmp_path, "transformer_xl", "noisy", 1, 0.0)
    (shown,) = {
        line.model for table in summaries.tables(results.collect([path])) for line in table.lines
    }
    assert shown == "transformer_xl"
    records.write_record(path, replace(records.read_record(path), **changes))
    tables = summaries.tables(results.collect([path]))
    assert "transformer_xl" not in {line.model for table in tables for line in table.lines}


def test_a_column_for_each_split(tmp_path: Path) -> None:
    """With the paper's number for the whole of it, of runs in the size that the summary names."""
    for split, seeds in (("cutoff_26", (1, 2)), ("cutoff_24", (1,))):
        for seed in seeds:
            data = Data(folder=split, dataset="scan", split=split, digest=split)
            record = Record(
                experiment="scan_cutoffs",
                model="multihead",
                size="small",
                seed=seed,
                data=data,
                trainings={"": {"max-update": 4000, "seed": seed}},
                sessions=[SESSION],
            )
            rows = [
                {"group": name, "sentences": "10", "percent": f"{seed}"} for name in ("27", "all")
            ]
            keep(tmp_path / f"{split}-{seed}", record, Asked(by="target_length"), rows)
    page = report.markdown(results.collect(sorted(tmp_path.iterdir(), reverse=True)))
    assert "| model | number of seeds | cutoff_24 | cutoff_26 |\n" in page
    assert "| multihead | 1 to 2 | 1.00 (6) | 1.50 ± 0.71 (11) |\n" in page


def test_depth_has_a_summary_but_no_table_of_its_own(tmp_path: Path) -> None:
    """Figure 4 of the Sparse Universal Transformer."""
    for model, depths in (("sut", (5.9, 5.5)), ("sut_act_0.001", (2.0, 3.5))):
        data = Data(folder="", dataset="logical_inference", split="full", digest="full")
        record = Record(
            experiment="logical_inference",
            model=model,
            size="small",
            seed=1,
            data=data,
            trainings={"": {"max-update": 5000, "seed": 1}},
            sessions=[SESSION],
        )
        rows = [
            {"group": group, "sentences": "10", "percent": "90", "encoder_depth": f"{depth}"}
            for group, depth in (("1", depths[0]), ("12", depths[1]), ("all", 0.0))
        ]
        keep(tmp_path / model, record, Asked(by="operators"), rows)
    groups = results.collect(sorted(tmp_path.iterdir()))
    page = report.markdown(groups)
    assert page.startswith(
        "## logical_inference, Figure 4\n\nDepth of the encoder, in steps per token"
    )
    assert "| sut | 1 | 5.90 | 5.50 |\n| sut_act_0.001 | 1 | 2.00 | 3.50 |\n" in page
    assert page.count("steps per token") == 1
    assert {row["measure"] for row in results.table(groups, [], by_group=True)} == {"percent"}


def test_a_column_for_a_group_of_each_split(tmp_path: Path) -> None:
    for split, shown in (("all", "shown"), ("held_out", "held_out")):
        data = Data(folder="", dataset="contextual_retrieval", split=split, digest=split)
        record = Record(
            experiment="contextual_retrieval",
            model="compositional",
            size="paper",
            seed=1,
            data=data,
            trainings={"": {"seed": 1}},
            sessions=[SESSION],
        )
        errors = {shown: "0.25", "all": "0.5"}
        rows = [
            {"group": group, "sentences": "10", "absolute_error": error}
            for group, error in errors.items()
        ]
        keep(tmp_path / split, record, Asked(by="combinations"), rows)
    page = report.markdown(results.collect(sorted(tmp_path.iterdir())))
    assert "| model | number of seeds | all | held_out |\n" in page
    assert "| compositional | 1 | 0.250 (0.1) | 0.250 (0.28) |\n" in page


@pytest.mark.parametrize("dataset", ["dataset: parallel_text", ""])
def test_translations_of_a_users_own_text(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their data name no split; each summary has files of its own, whatever its title."""
    own = tmp_path / "my.v2.yaml"
    own.write_text(
        f"""{dataset}
shows: two sizes
metric: bleu
prepare: {{mine: parallel_text}}
models: {{sut: sut_tiny}}
sizes: {{small: {{about: small}}}}
evaluation: {{kind: translation}}
summaries:
- {{title: Table 9.1, splits: [mine]}}
- {{title: Table 9.2 (a/b), splits: [mine], by_split: true}}
"""
    )
    path = looked_up(tmp_path, "sut", "", 1, 0.5)
    record = records.read_record(path)
    data = replace(record.data, dataset="")
    records.write_record(path, replace(record, experiment=str(own), size="small", data=data))
    (path / "test-by-set.evaluation.json").unlink()
    evaluated = Evaluated(
        asked=Asked(by="score"),
        data=data,
        measure="BLEU and chrF",
        rows=[{"group": "sacreBLEU", "percent": "30.5"}, {"group": "all", "percent": "31.5"}],
        code=CODE,
        when=EVALUATED,
    )
    write(path, evaluated.asked.name(), evaluated)
    figures = tmp_path / "figures"
    assert experiment.main(["report", str(path), "--figures", str(figures)]) == 0
    assert "| sut | 1 | 30.50 |" in capsys.readouterr().out
    names = ["my.v2-table-9.1", "my.v2-table-9.2-a-b"]
    files = sorted(f"{name}.{ending}" for name in names for ending in ("csv", "png"))
    assert sorted(one.name for one in figures.iterdir()) == files
    assert "sacreBLEU,1,30.5000" in (figures / "my.v2-table-9.1.csv").read_text()


def test_figures_of_two_experiments_of_one_name_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One would replace the other; nothing is written."""
    for folder in ("ours", "other"):
        (tmp_path / folder).mkdir()
    ours = looked_up(tmp_path / "ours", "mix", "noisy", 1, 0.0)
    other = looked_up(tmp_path / "other", "mix", "noisy", 1, 0.0)
    own = tmp_path / "long_lookup_tables.yaml"
    own.write_text(reading.read("long_lookup_tables").path.read_text(encoding="utf-8"))
    records.write_record(other, replace(records.read_record(other), experiment=str(own)))
    figures = tmp_path / "figures"
    assert experiment.main(["report", str(ours), str(other), "--figures", str(figures)]) == 2
    said = capsys.readouterr().err
    assert "two experiments would have the file long_lookup_tables-figure-8.png: give one" in said
    assert not figures.exists()
