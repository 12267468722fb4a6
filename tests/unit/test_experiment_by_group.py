"""Results by group of sentences: which runs they are of, and how pages show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sut_fairseq.cli._experiment_figures import draw_curves
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import by_group, pages, reading, records, report, results
from sut_fairseq.experiments.by_group import main_runs, short_names
from sut_fairseq.experiments.evaluating import Asked, Evaluated, write
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.results import Group
from sut_fairseq.experiments.summaries import Table
from tests.experiment_runs import CODE, DRAW_NOTHING, EVALUATED, FORWARD, evaluate, run
from tests.unit.test_experiment_curves import LOG

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
    further = tmp_path / "further.yaml"
    further.write_text("extends: mine\n", encoding="utf-8")
    assert reading.read(str(further)).compared == [], "it may have other models"
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


def test_errors_are_best_if_small(tmp_path: Path) -> None:
    """And a summary that shows them leaves nothing to add."""
    paths = []
    for updates, error in ((5, 0.5), (6, 0.7), (7, 0.6)):
        data = Data(
            folder="",
            dataset="contextual_retrieval",
            split="all",
            digest="d",
        )
        paths.append(path := run(tmp_path, "compositional", 1, {}, updates, data))
        record = replace(records.read_record(path), experiment="contextual_retrieval")
        records.write_record(path, record)
        (path / "test-by-depth.evaluation.json").unlink()
        rows = [{"group": name, "absolute_error": str(error)} for name in ("shown", "all")]
        asked = Asked(by="combinations")
        evaluated = Evaluated(
            asked=asked, data=data, measure="error", rows=rows, code=CODE, when=EVALUATED
        )
        write(path, asked.name(), evaluated)
    assert folders(main_runs(results.collect(paths))) == [
        ["compositional-1-7"],
        ["compositional-1-5"],
    ]


def test_groups_that_a_summary_shows_are_left_out(tmp_path: Path) -> None:
    """But not because it could show them in another size, or shows something else of them."""
    own = tmp_path / "mine.yaml"
    path = run(tmp_path, "ndr", 1, {**GROUPS, "all": 90.0})
    record = replace(records.read_record(path), experiment=str(own), updates=None)
    records.write_record(path, record)
    for summary, there in (
        ("{title: F, splits: [forward]}", True),
        ("{title: F, splits: [forward], size: small}", False),
        ("{title: F, splits: [forward], size: small, by_split: true}", True),
        (
            '{title: F, splits: [forward], size: small, by_split: true, of_split: {forward: "9"}}',
            False,
        ),
        ("{title: F, splits: [forward], size: small, measure: macs}", True),
    ):
        own.write_text(f"extends: ctl\nsummaries: [{summary}]\n", encoding="utf-8")
        pages.write(results.collect([path]), tmp_path / "pages", DRAW_NOTHING)
        page = (tmp_path / "pages" / "mine.md").read_text()
        assert ("## Results by depth" in page) is there, summary


def test_runs_that_only_their_data_set_apart(tmp_path: Path) -> None:
    """Their columns have the names of their folders."""
    paths = [run(tmp_path, "ndr", seed, {**GROUPS, "all": 90.0}) for seed in (1, 2)]
    other = replace(FORWARD, digest="other")
    paths.append(run(tmp_path, "ndr", 3, {**GROUPS, "all": 95.0}, data=other))
    _, _, table = report.by_group_section(shown(results.collect(paths)))
    assert table.startswith("|  | ndr | ndr (ndr-3-5) |\n")


def test_names_are_no_markup(tmp_path: Path) -> None:
    groups = results.collect([run(tmp_path, "ndr", 1, {"<unk>": 1.0, "*a|b*": 2.0, "all": 1.5})])
    *_, table = report.by_group_section(shown(groups))
    lines = table.splitlines()[2:]
    assert lines == ["| &lt;unk&gt; | 1.00 |", r"| \*a\|b\* | 2.00 |", "| all | 1.50 (100) |"]
    assert "| &lt;unk&gt; | 10 | 1.00 |" in report.markdown(groups)


def test_the_whole_set_is_last(tmp_path: Path) -> None:
    """Also if another run has more groups."""
    paths = [
        run(tmp_path, "ndr", 1, {"x": 1.0, "y": 2.0, "all": 1.5}),
        run(tmp_path, "lstm", 1, {"x": 1.0, "y": 2.0, "z": 2.0, "all": 1.5}),
    ]
    assert shown(results.collect(paths)).groups == ["x", "y", "z", "all"]


def test_curves_of_many_trainings_without_results(tmp_path: Path) -> None:
    """All are drawn: no runs say more than others."""
    for number in range(1, 15):
        path = run(tmp_path, "ndr", 1, {}, number)
        (path / "test-by-depth.evaluation.json").unlink()
        (path / "train.log").write_text(LOG)
    draw = replace(DRAW_NOTHING, curves=draw_curves)
    pages.write(results.collect(sorted(tmp_path.glob("ndr-*"))), tmp_path / "pages", draw)
    assert (tmp_path / "pages" / "pictures" / "ctl-curves.png").is_file()


def test_many_curves_are_those_of_the_main_runs(tmp_path: Path) -> None:
    """All others have none, so that a picture stays legible."""
    paths = [run(tmp_path, "ndr", 1, {"all": 50.0 + number}, number) for number in range(1, 13)]
    drawn: list[int] = []

    def count(groups: list[Group], picture: Path) -> bool:
        drawn.append(len(groups))
        return True

    draw = replace(DRAW_NOTHING, curves=count)
    for _ in range(2):
        pages.write(results.collect(paths), tmp_path / "pages", draw)
        paths.append(run(tmp_path, "ndr", 1, {"all": 99.0}, 0))
    assert drawn == [12, 2]
