"""Tables and figures of a paper that put models or data side by side, made from our runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sut_fairseq.experiments.csv_files import write_csv
from sut_fairseq.experiments.evaluating import usual_measure
from sut_fairseq.experiments.published import ALL, is_usual
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.results import Group, Row, mean_of
from sut_fairseq.experiments.schema import SUMMARISED, Experiment, Summary

COLUMNS = ("model", "split", "group", "seeds", "each", "mean", "deviation", "paper")


@dataclass(frozen=True)
class Line:
    """The results of a model, on one of the splits or as the mean over all of them.

    Attributes:
        model: of the runs.
        split: empty for the mean.
        rows: by group.
    """

    model: str
    split: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Table:
    """A summary with its results.

    Attributes:
        summary: what it shows.
        experiment: name of its experiment.
        measure: what the numbers are, in words.
        lines: model by model.
    """

    summary: Summary
    experiment: str
    measure: str
    lines: Sequence[Line]

    @property
    def groups(self) -> list[str]:
        """The groups of all lines: numbers by size, then others in their order, then the whole."""
        found = dict.fromkeys(row.group for line in self.lines for row in line.rows)
        if self.summary.by_split:  # a line may lack some of them
            return [split for split in self.summary.splits if split in found]

        def place(name: str) -> tuple[bool, float]:
            return name == ALL, int(name) if name.isdecimal() else math.inf

        return sorted(found, key=place)

    def without_all(self) -> Table:
        """The same without the results on all sentences."""
        lines = [
            replace(line, rows=[row for row in line.rows if row.group != ALL])
            for line in self.lines
        ]
        return replace(self, lines=lines)

    def cells(self) -> list[dict[str, str]]:
        """A row for each result, as text by column (`COLUMNS`)."""
        return [
            {
                "model": line.model,
                "split": line.split,
                "group": row.group,
                **row.figures("{:.4f}".format),
            }
            for line in self.lines
            for row in line.rows
        ]


def write_cells(table: Table, path: Path) -> None:
    """Write the cells of a table into a CSV file."""
    write_csv(path, COLUMNS, table.cells())


def tables(groups: Sequence[Group]) -> list[Table]:
    """The summaries of all experiments of these runs for which there are results.

    Only finished runs on whole data with the settings of their experiment count, in one size and
    on the usual set.
    """
    groups = [done for group in groups if (done := group.finished())]
    found = []
    # Compare files: a user's experiment may have the name of one of ours.
    experiments = {group.experiment.path: group.experiment for group in groups}
    for experiment in experiments.values():
        for summary in experiment.summaries:
            lines = list(_lines(experiment, summary, groups))
            if lines:
                percent = summary.measure == "percent"
                of = f"{usual_measure(experiment)}, " if percent else ""
                measure = of + SUMMARISED[summary.measure]
                found.append(Table(summary, experiment.name, measure, lines))
    return found


def _lines(experiment: Experiment, summary: Summary, groups: Sequence[Group]) -> Iterator[Line]:
    for model in summary.models or experiment.models:
        found = {
            split: _results(experiment, summary, groups, model, split) for split in summary.splits
        }
        if summary.mean_of_splits:
            found = {"": mean_of([*found.values()])}
        if summary.by_split:
            columns = [replace(row, group=split) for split, rows in found.items() for row in rows]
            found = {"": columns}
        for split, rows in found.items():
            if not summary.by_split:
                paper = summary.numbers.get(summary.row(model, split), {})
                rows = [replace(row, paper=paper.get(row.group)) for row in rows]
            if rows:
                yield Line(model, split, rows)


def _results(
    experiment: Experiment, summary: Summary, groups: Sequence[Group], model: str, split: str
) -> list[Row]:
    """Results of a model on a split by group, of the runs with the most seeds."""
    wanted = (experiment.path, model, summary.size or next(iter(experiment.sizes)))
    found = [
        rows
        for group in groups
        if (group.experiment.path, group.first.model, group.first.size) == wanted
        and _is_as_described(experiment, group.first, split)
        and (rows := _usual_rows(group, summary, split))
    ]
    return max(found, key=lambda rows: len(rows[0].results), default=[])


def _is_as_described(experiment: Experiment, record: Record, split: str) -> bool:
    """Whether a run has the data and settings that the experiment's file has for a split."""
    # If there is only one split, the data need not name it.
    on_split = record.data.split == split or experiment.splits == [split]
    changed = record.without or record.options or record.own_length
    return on_split and not changed and is_usual(experiment, record.data)


def _usual_rows(group: Group, summary: Summary, split: str) -> list[Row]:
    """What a summary shows of the usual evaluation of runs; nothing if there is none."""
    if (usual := group.usual()) is None:
        return []
    rows = usual.rows_of(summary.measure)
    if summary.by_split:
        shown = summary.of_split.get(split, ALL)
        return [row for row in rows if row.group == shown]
    return [row for row in rows if row.group != ALL]
