"""Results by group of sentences: which runs they are of, and how pages show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import by_group, pages, reading, records, report, results
from sut_fairseq.experiments.by_group import main_runs, short_names
from sut_fairseq.experiments.evaluating import Asked
from sut_fairseq.experiments.results import Group
from sut_fairseq.experiments.summaries import Table
from tests.experiment_runs import DRAW_NOTHING, FORWARD, evaluate, run

GROUPS = {"9": 97.0, "10": 95.0}
BACKWARD = replace(FORWARD, split="backward", digest="d2")


def folders(groups: list[Group]) -> list[list[str]]:
    return [[path.name for path in group.runs] for group in groups]


def shown(groups: list[Group]) -> Table:
    main = main_runs(groups)
    table = by_group.table(main, short_names(main))
    assert table is not None
    return table


def test_the_runs_that_say_most_and_the_best_ones(tmp_path: Path) -> None:
    """Split by split, and model by model in the order of the experiment."""
    several = [run(tmp_path, "ndr", seed, {**GROUPS, "all": 90.0}, 2) for seed in (1, 2)]
    best = run(tmp_path, "ndr", 1, {**GROUPS, "all": 99.0}, 3)
    run(tmp_path, "ndr", 1, {**GROUPS, "all": 80.0}, 4)
    other = run(tmp_path, "transformer", 1, {**GROUPS, "all": 50.0})
    backward = run(tmp_path, "lstm", 1, {**GROUPS, "all": 9.0}, data=BACKWARD)
    groups = results.collect([backward, other, *sorted(tmp_path.glob("ndr-*"))])
    names = [[path.name for path in several], [other.name], [best.name], [backward.name]]
    assert folders(main_runs(groups)) == names


def test_runs_that_say_nothing(tmp_path: Path) -> None:
    """Those that are not finished, not evaluated, on parts of data, or without a part."""
    unfinished, bare, without = (
        run(tmp_path, "ndr", 1, {**GROUPS, "all": 90.0}, updates) for updates in (1, 2, 3)
    )
    sessions = [replace(records.read_record(unfinished).sessions[0], outcome="interrupted")]
    records.write_record(unfinished, replace(records.read_record(unfinished), sessions=sessions))
    (bare / "test-by-depth.evaluation.json").unlink()
    records.write_record(without, replace(records.read_record(without), without="halting"))
    part = replace(FORWARD, limited=True, digest="d3")
    limited = run(tmp_path, "ndr", 1, {**GROUPS, "all": 90.0}, 4, data=part)
    groups = results.collect([unfinished, bare, without, limited])
    assert main_runs(groups) == []
    assert by_group.table([], []) is None


def test_models_that_are_compared(tmp_path: Path) -> None:
    """A file can name them; others have no column."""
    own = tmp_path / "mine.yaml"
    own.write_text("extends: ctl\ncompared: [lstm]\n", encoding="utf-8")
    paths = [run(tmp_path, model, 1, {**GROUPS, "all": 90.0}) for model in ("ndr", "lstm")]
    for path in paths:
        records.write_record(path, replace(records.read_record(path), experiment=str(own)))
    assert folders(main_runs(results.collect(paths))) == [["lstm-1-5"]]
    own.write_text("extends: ctl\ncompared: [ltsm]\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"compared` must be one of ndr, .*, but is ltsm"):
        reading.read(str(own))


def test_the_table(tmp_path: Path) -> None:
    """A line for each group; the second split is folded, and so is a long table."""
    numbers = {str(number): 50.0 + number for number in range(20)}
    paths = [
        *(run(tmp_path, "ndr", seed, {**GROUPS, "all": 97.0 + seed}) for seed in (1, 2)),
        run(tmp_path, "lstm", 1, {"9": 12.0, "all": 12.0}),
        run(tmp_path, "rel", 1, {"9": 12.0, "10": 11.0, "all": 11.5}),
        run(tmp_path, "bilstm", 1, {**numbers, "all": 60.0}, data=BACKWARD),
    ]
    groups = results.collect(paths)
    pages.write(groups, tmp_path / "pages", DRAW_NOTHING)
    page = (tmp_path / "pages" / "ctl.md").read_text()
    text = "\n\n".join(report.by_group_section(shown(groups)))
    assert f"\n\n{text}\n\n" in page
    assert text.startswith(
        "## Results by depth\n\nAccuracy, in per cent (mean and deviation of all"
    )
    opened, folded = text.split("</details>")[:2]
    assert '<details open markdown="1">\n<summary><code>forward</code></summary>' in opened
    assert "|  | ndr | rel |" in opened, "one group alone is no table"
    assert "| 10 | 95.00 ± 0.00 | 11.00 |" in opened
    assert "| all | 98.50 ± 0.71 (100) | 11.50 (23) |" in opened
    assert '<details markdown="1">\n<summary><code>backward</code></summary>' in folded
    assert "| 19 | 69.00 |\n| all | 60.00 (" in folded


def test_a_single_short_table_is_not_folded(tmp_path: Path) -> None:
    (group,) = results.collect([run(tmp_path, "ndr", 1, {**GROUPS, "all": 90.0})])
    *_, last = report.by_group_section(shown([group]))
    assert last.startswith("|  | ndr |\n")


def test_a_table_of_the_paper_is_drawn(tmp_path: Path) -> None:
    """Without the results on all sentences, and before the curves; others are not drawn."""
    own = tmp_path / "mine.yaml"
    numbers = "published: [{table: T, by: depth, split: forward, numbers: {ndr: {9: 99}}}]"
    own.write_text(f"extends: ctl\nsummaries: []\n{numbers}\n", encoding="utf-8")
    path = run(tmp_path, "ndr", 1, {**GROUPS, "all": 90.0})
    drawn: list[Table] = []
    draw = replace(
        DRAW_NOTHING,
        table=lambda table, picture: drawn.append(table),
        curves=lambda groups, picture: True,
    )
    pages.write(results.collect([path]), tmp_path / "pages", draw)
    assert drawn == []
    records.write_record(path, replace(records.read_record(path), experiment=str(own)))
    pages.write(results.collect([path]), tmp_path / "pages", draw)
    (table,) = drawn
    assert [(row.group, row.paper) for row in table.lines[0].rows] == [("9", 99), ("10", None)]
    page = (tmp_path / "pages" / "mine.md").read_text()
    assert "| 9 | 97.00 (99) |" in page
    picture = page.index("![Results by depth](pictures/mine-results-by-depth.png)")
    assert picture < page.index("## Validation during training")


def test_scores_of_translations(tmp_path: Path) -> None:
    """They take the place of groups; the first one decides which runs are best."""
    own = tmp_path / "mine.yaml"
    text = "shows: mine\nprepare: {full: parallel_text}\nmodels: {sut: sut_tiny}\nmetric: bleu\n"
    own.write_text(f"{text}evaluation: {{kind: translation}}\nsizes: {{small: {{}}}}\n")
    data = replace(FORWARD, dataset="", split="")
    paths = []
    for updates, score in ((5, 30.5), (6, 29.0)):
        paths.append(path := run(tmp_path, "sut", 1, {}, updates, data))
        records.write_record(path, replace(records.read_record(path), experiment=str(own)))
        (path / "test-by-depth.evaluation.json").unlink()
        evaluate(path, data, {"sacreBLEU": score, "chrF": 55.0}, Asked(by="score"))
    groups = results.collect(paths)
    assert folders(main_runs(groups)) == [["sut-1-6"], ["sut-1-5"]]
    head, _, table = report.by_group_section(shown(groups))
    assert head == "## Results"
    assert table.endswith("| sacreBLEU | 29.00 | 30.50 |\n| chrF | 55.00 | 55.00 |")


def test_many_curves_are_those_of_the_main_runs(tmp_path: Path) -> None:
    """All others have none, so that a picture stays legible."""
    paths = [run(tmp_path, "ndr", 1, {"all": 50.0 + number}, number) for number in range(1, 13)]
    drawn: list[int] = []

    def draw_curves(groups: list[Group], picture: Path) -> bool:
        drawn.append(len(groups))
        return True

    draw = replace(DRAW_NOTHING, curves=draw_curves)
    for _ in range(2):
        pages.write(results.collect(paths), tmp_path / "pages", draw)
        paths.append(run(tmp_path, "ndr", 1, {"all": 99.0}, 0))
    assert drawn == [12, 2]
