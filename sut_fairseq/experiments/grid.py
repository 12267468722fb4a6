"""The matrix: all models (rows) on all tasks (columns), a run for each cell and seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import provenance
from sut_fairseq.experiments.preparing import folder_of
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.published import is_about
from sut_fairseq.experiments.reading import FOLDER, MATRIX, read
from sut_fairseq.experiments.running import PROGRAM_NAME
from sut_fairseq.experiments.runs import Run, name_of_run
from sut_fairseq.experiments.schema import Experiment
from sut_fairseq.experiments.settings import Choice, check_choice_of, check_name
from sut_fairseq.experiments.typed import build, read_yaml

GRID = FOLDER / MATRIX / "_grid.yaml"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A task; `_grid.yaml` explains the keys.

    Attributes:
        title: heading.
        score: what is measured, in words.
        groups: groups of the evaluation that count, taken together; none: all sentences.
    """

    title: str
    score: str
    groups: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows and columns.

    Attributes:
        budget: what all rows of a column have in common.
        rows: headings by the name of a model.
        columns: by the name of an experiment.
    """

    budget: str
    rows: dict[str, str]
    columns: dict[str, Column]

    def experiment(self, column: str) -> Experiment:
        """The experiment of a column."""
        return read(f"{MATRIX}/{column}")

    def only(self, rows: Sequence[str] | None, columns: Sequence[str] | None) -> Grid:
        """The part of the matrix with these rows and columns; None: all.

        Raises:
            InputError: for an unknown row or column.
        """
        for name in rows or ():
            check_name("the matrix has the rows", name, list(self.rows))
        for name in columns or ():
            check_name("the matrix has the columns", name, list(self.columns))
        return self._part(set(rows or self.rows), set(columns or self.columns))

    def with_those_of(self, cells: Iterable[tuple[str, str]], whole: Grid) -> Grid:
        """This part of the matrix, extended by the rows and columns of further cells.

        Args:
            cells: model and name of the experiment.
            whole: the whole matrix; cells that are not in it are left out.
        """
        columns = {whole.experiment(column).name: column for column in whole.columns}
        more = [
            (row, columns[name]) for row, name in cells if row in whole.rows and name in columns
        ]
        rows, names = ({*part} for part in zip(*more)) if more else (set(), set())
        return whole._part({*self.rows, *rows}, {*self.columns, *names})

    def _part(self, rows: set[str], columns: set[str]) -> Grid:
        return replace(
            self,
            rows={name: title for name, title in self.rows.items() if name in rows},
            columns={name: column for name, column in self.columns.items() if name in columns},
        )


def read_grid() -> Grid:
    """Read the file of the matrix."""
    return build(Grid, *read_yaml(GRID))


def runs(
    grid: Grid,
    *,
    size: str,
    seeds: Sequence[int],
    updates: int | None,
    out: Path,
    only_listed: bool = False,
) -> list[Run]:
    """The runs of all cells: the whole matrix with one seed, then with the next.

    Args:
        grid: which cells.
        size: of all experiments.
        seeds: of each cell.
        updates: replaces the number of updates that the files have.
        out: a run is in `out/COLUMN/ROW-seed-N`; if size is not the first one, in
            `out/COLUMN/ROW-SIZE-seed-N`.
        only_listed: the runs are only listed, so data may be missing.

    Raises:
        InputError: for an unknown size, or data that are missing or not those of the column.
    """
    experiments = {name: grid.experiment(name) for name in grid.columns}
    choices = [Choice(row, size, updates=updates) for row in grid.rows]
    for experiment in experiments.values():
        check_choice_of(experiment, choices[0])
    data = {name: _data(experiment) for name, experiment in experiments.items()}
    if not only_listed:
        _check_data(experiments, data)
    return [
        Run(
            experiment=experiment,
            choice=choice,
            seed=seed,
            data=data[name],
            folder=(out / name / name_of_run(experiment, choice, seed, data[name])).resolve(),
        )
        for seed in dict.fromkeys(seeds)
        for name, experiment in experiments.items()
        for choice in choices
    ]


def _check_data(experiments: Mapping[str, Experiment], data: Mapping[str, Data]) -> None:
    """Refuse data, by column, that are missing or not those of the column.

    Raises:
        InputError: naming them, and the commands that make them.
    """
    others = [
        f"{found.folder} ({found.dataset}, split {found.split or 'none'}) for {name}"
        for name, found in data.items()
        if found.digest and not is_about(experiments[name], found)
    ]
    if others:
        raise InputError(
            f"other data than those of the column: {'; '.join(others)}; rename the folders, then "
            f"prepare these with `{PROGRAM_NAME} prepare matrix/COLUMN`."
        )
    missing = [experiments[name].name for name, found in data.items() if not found.digest]
    if missing:
        commands = "; ".join(f"{PROGRAM_NAME} prepare {name}" for name in missing)
        raise InputError(
            f"the data of {', '.join(missing)} are not there: make them with `{commands}`, or name "
            "other columns with --columns."
        )


def _data(experiment: Experiment) -> Data:
    """The prepared folder of a column; without a digest if it does not exist."""
    folder = folder_of(experiment, None).resolve()
    return provenance.describe_data(folder) if folder.is_dir() else Data(folder=str(folder))
