"""The table of the matrix: scores and costs of all cells, as Markdown and as rows for programs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sut_fairseq.experiments.costs import Costs, read_costs
from sut_fairseq.experiments.csv_files import write_csv
from sut_fairseq.experiments.evaluating import Evaluated, read_evaluations
from sut_fairseq.experiments.grid import Column, Grid
from sut_fairseq.experiments.published import ALL, is_about, made_as_usual
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.report import markdown_table, run_cells
from sut_fairseq.experiments.results import Group
from sut_fairseq.experiments.schema import Experiment
from sut_fairseq.experiments.settings import described_size

COLUMNS = (
    *("row", "column", "size", "updates", "seeds", "each", "mean", "deviation"),
    *("parameters", "MACs", "seconds", "remark"),
)
NOT_RUN = "not run"
_SPECIAL = "†"


@dataclass(frozen=True)
class Cell:
    """The results of a model on a task.

    Attributes:
        row, column: its place in the matrix.
        scores: in per cent, by seed.
        group: the runs; None without any.
        costs: of the first run with costs.
        remark: what is special about the runs.
        text: what the table says where there is no score.
    """

    row: str
    column: str
    scores: dict[int, float] = field(default_factory=dict)
    group: Group | None = None
    costs: Costs | None = None
    remark: str = ""
    text: str = ""

    @property
    def mean(self) -> float | None:
        """Mean over all seeds; None without a score."""
        return statistics.fmean(self.scores.values()) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for fewer than two seeds."""
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else None

    def __str__(self) -> str:
        if self.mean is None:
            return self.text
        deviation = "" if self.deviation is None else f" ± {self.deviation:.1f}"
        return f"{self.mean:.1f}{deviation}{_SPECIAL if self.remark else ''}"


@dataclass(frozen=True)
class Table:
    """All cells.

    Attributes:
        grid: rows and columns.
        size: of the experiments.
        cells: row by row.
    """

    grid: Grid
    size: str
    cells: Sequence[Sequence[Cell]]

    def rows(self) -> list[dict[str, str]]:
        """A row for each cell, as text by column (`COLUMNS`)."""
        return [self._row(cell) for line in self.cells for cell in line]

    def _row(self, cell: Cell) -> dict[str, str]:
        updates = cell.group.first.all_updates if cell.group else None
        return {
            "row": cell.row,
            "column": cell.column,
            "size": self.size,
            "updates": "" if updates is None else str(updates),
            "seeds": " ".join(map(str, cell.scores)),
            "each": " ".join(f"{score:.4f}" for score in cell.scores.values()),
            "mean": "" if cell.mean is None else f"{cell.mean:.4f}",
            "deviation": "" if cell.deviation is None else f"{cell.deviation:.4f}",
            "parameters": "" if cell.costs is None else str(cell.costs.params),
            "MACs": "" if cell.costs is None else str(cell.costs.macs),
            "seconds": "" if cell.group is None else f"{_seconds(cell.group):.1f}",
            "remark": cell.remark or ("" if cell.scores else cell.text),
        }


def table(grid: Grid, groups: Sequence[Group], size: str) -> Table:
    """The matrix with the results of these runs."""
    columns = grid.columns.items()
    experiments = {name: grid.experiment(name) for name in grid.columns}
    cells = [
        [_cell(column, row, name, experiments[name], groups, size) for name, column in columns]
        for row in grid.rows
    ]
    return Table(grid, size, cells)


def _cell(
    column: Column,
    row: str,
    name: str,
    experiment: Experiment,
    groups: Sequence[Group],
    size: str,
) -> Cell:
    wanted = (experiment.path, row, size)
    found = [
        _scored(row, name, experiment, column, group)
        for group in groups
        if (group.experiment.path, group.first.model, group.first.size) == wanted
    ]
    # Full trainings are preferred to shortened ones, and more seeds to fewer.
    best = max(
        found, key=lambda one: (bool(one.scores), not one.remark, len(one.scores)), default=None
    )
    return best or Cell(row, name, text=NOT_RUN)


def _scored(row: str, name: str, experiment: Experiment, column: Column, group: Group) -> Cell:
    scores: dict[int, float] = {}
    for run, record in group.runs.items():
        score = _score(read_evaluations(run, record), experiment, column)
        if record.finished() and score is not None:
            scores[record.seed] = score
    costs = next((costs for run in group.runs if (costs := read_costs(run))), None)
    cut = _cut_short(group.first, experiment)
    return Cell(row, name, scores, group, costs, cut, "" if scores else _why(group))


def _score(
    evaluations: Sequence[Evaluated], experiment: Experiment, column: Column
) -> float | None:
    """The usual score on the sentences that count, in per cent."""
    usual = experiment.evaluation
    for one in evaluations:
        if one.asked.plain and (one.asked.subset, one.asked.by) == (usual.subset, usual.by):
            values, counts = one.values(), one.sentences()
            groups = column.groups or [ALL]
            if any(name not in values for name in groups):
                return None
            total = sum(counts[name] for name in groups)
            if total:
                return sum(values[name] * counts[name] for name in groups) / total
    return None


def _why(group: Group) -> str:
    """Why these runs have no score."""
    if any(record.finished() for record in group.runs.values()):
        return "not evaluated"
    return "not finished" if any(one.sessions for one in group.runs.values()) else NOT_RUN


def _cut_short(record: Record, experiment: Experiment) -> str:
    """What distinguishes a run from those that its experiment's file describes."""
    data = record.data
    about = is_about(experiment, data)
    options = " ".join(data.options) or "no options"
    remarks = {
        f"other data ({data.dataset} {data.split})": not about,
        record.own_length: bool(record.own_length),
        "own options": bool(record.options),
        "a part of the data": data.limited,
        f"data made with {options}": about and not made_as_usual(experiment, data),
    }
    return ", ".join(remark for remark, holds in remarks.items() if holds)


def _seconds(group: Group | None) -> float:
    """Seconds of training, the mean over finished seeds."""
    times = [one.seconds for one in group.runs.values() if one.finished()] if group else []
    return statistics.fmean(times) if times else 0.0


def write_rows(table: Table, path: Path) -> None:
    """Write the cells into a CSV file."""
    write_csv(path, COLUMNS, table.rows())


def markdown(table: Table) -> str:
    """The scores, the costs and the runs."""
    return f"{scores(table)}\n\n{costs_and_runs(table)}\n"


def scores(table: Table) -> str:
    """The table with an explanation of its columns."""
    grid = table.grid
    heads = ["model", *(column.title for column in grid.columns.values())]
    best = [_best(line) for line in zip(*table.cells)]
    lines = [
        [
            grid.rows[line[0].row],
            *(f"**{c}**" if c.mean and str(c) in top else str(c) for c, top in zip(line, best)),
        ]
        for line in table.cells
    ]
    parts = [
        f"Scores in per cent, of several seeds mean and deviation; the best of a column is bold. "
        f"{grid.budget.strip()}",
        markdown_table([heads, *lines]),
        "\n".join(_legend(table)),
    ]
    return "\n\n".join(parts)


def costs_and_runs(table: Table) -> str:
    """What a training example costs each model, seconds of training, and the runs."""
    grid = table.grid
    heads = ["model", *(column.title for column in grid.columns.values())]
    costs = [[grid.rows[line[0].row], *map(_costs, line)] for line in table.cells]
    parts = [
        "Millions of MACs for an example of the training set (mean of 64, forward pass, attention "
        "products included), millions of parameters, and seconds of training:",
        markdown_table([heads, *costs]),
    ]
    made = [cell for line in table.cells for cell in line if cell.group and cell.scores]
    if made:
        head = ("column", "row", "run", "seed", "length", "training", "code", "data", "machine")
        lines = [
            (cell.column, cell.row, *run_cells(run, record)[:-1])
            for cell in made
            for run, record in (cell.group.runs if cell.group else {}).items()
        ]
        parts += ["The runs:", markdown_table([head, *lines])]
    return "\n\n".join(parts)


def _best(cells: Sequence[Cell]) -> set[str]:
    """The highest score of full trainings, as the table shows it; several texts with ties."""
    scored = [cell for cell in cells if cell.mean and not cell.remark]
    highest = max((f"{cell.mean:.1f}" for cell in scored), key=float, default="")
    return {str(cell) for cell in scored if f"{cell.mean:.1f}" == highest}


def _legend(table: Table) -> Iterator[str]:
    for name, column in table.grid.columns.items():
        experiment = table.grid.experiment(name)
        about = described_size(experiment, table.size)
        yield f"- {column.title} (`{experiment.name}`): {column.score}; {about}."
    special: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for line in table.cells:
        for cell in line:
            if cell.remark:
                where = f"{table.grid.rows[cell.row]} on {table.grid.columns[cell.column].title}"
                special[_SPECIAL if cell.scores else cell.text, cell.remark].append(where)
    for (sign, remark), cells in special.items():
        yield f"- {sign} {remark}: {', '.join(cells)}."


def _costs(cell: Cell) -> str:
    if cell.costs is None:
        return ""
    macs, params = cell.costs.macs / 1e6, cell.costs.params / 1e6
    return f"{macs:.1f}; {params:.2f}; {_seconds(cell.group):,.0f} s"
