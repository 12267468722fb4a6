"""The pages of `docs/results`: a first table of all experiments, and a page for each of them.

They are generated from the records of runs alone. What was tried, and what to make of it, is in
`NOTES`, in a file for each page: its first paragraph stands above tables and pictures, the rest
below them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sut_data.files import read_lines, write_whole
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import by_group, front_table, grid_results, report
from sut_fairseq.experiments.by_group import main_runs, short_names
from sut_fairseq.experiments.claims import Found, check_claims
from sut_fairseq.experiments.grid import read_grid
from sut_fairseq.experiments.reading import MATRIX, columns, is_ours, known, read
from sut_fairseq.experiments.results import Group
from sut_fairseq.experiments.schema import Experiment
from sut_fairseq.experiments.summaries import Table, tables, write_cells

INDEX = "index.md"
NOTES = Path("notes")
PICTURES = Path("pictures")
_MOST_CURVES = 12  # in one picture; if there are more, only the main runs have one
_DEEPER = "valid_deep"
_ABOUT_DEEPER = (
    f"`valid` is like the training data, `{_DEEPER}` longer or deeper, "
    "but less so than the test set."
)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Functions that draw the pictures, each into a file.

    Attributes:
        curves: draws those of an experiment's runs; returns whether there were any.
        trade_offs: draws the results of their threshold sweeps; returns whether there were any.
        table: draws a summary.
        matrix: draws the scores of the matrix.
        claims: draws all results beside the papers'; returns whether there were any.
    """

    curves: Callable[[Sequence[Group], Path], bool]
    trade_offs: Callable[[Sequence[Group], Path], bool]
    table: Callable[[Table, Path], None]
    matrix: Callable[[grid_results.Table, Path], None]
    claims: Callable[[Sequence[Found], Path], bool]


def write(groups: Sequence[Group], folder: Path, draw: Draw) -> list[Path]:
    """Write all pages; pages of experiments without runs are left alone.

    Args:
        groups: of runs.
        folder: to write to, such as `docs/results`.
        draw: draws the pictures.

    Returns:
        the pages.

    Raises:
        InputError: if two experiments would have the same page.
    """
    experiments = _experiments(groups)
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    written = []
    for experiment in experiments:
        own = [group for group in groups if group.experiment.path == experiment.path]
        if own:
            page = _page(experiment, own, folder, draw)
            written.append(_write(folder / f"{experiment.name}.md", page))
    if any(group.first.experiment in columns() for group in groups):
        written.append(_write(folder / f"{MATRIX}.md", _matrix(groups, folder, draw)))
    present = [path.stem for path in written]
    found = check_claims(experiments, groups)
    found.sort(key=lambda one: one.experiment.citation)
    index = _index(found, folder, present, draw)
    return [_write(folder / INDEX, index), *written]


def _experiments(groups: Sequence[Group]) -> list[Experiment]:
    """The experiments of the package, then users' own ones that have runs."""
    experiments = {name: read(name) for name in known()}
    for group in groups:
        one = group.experiment
        if is_ours(one.path):
            continue
        if one.name in (Path(INDEX).stem, MATRIX):
            raise InputError(
                f"the page of {one.path} would be {one.name}.md, which is another page: give the "
                "file another name, and train under that."
            )
        other = experiments.setdefault(one.name, one).path
        if other != one.path:
            raise InputError(
                f"{one.path} and {other} would have the same page: give one of the files another "
                "name, and train under that."
            )
    return list(experiments.values())


def _write(path: Path, text: str) -> Path:
    write_whole(path, text)
    return path


def _matrix(groups: Sequence[Group], folder: Path, draw: Draw) -> str:
    """The page of the matrix, in the first size of its columns; its rows go into a CSV file."""
    grid = read_grid()
    size = next(iter(grid.experiment(next(iter(grid.columns))).sizes))
    table = grid_results.table(grid, groups, size)
    picture, rows = PICTURES / f"{MATRIX}.png", Path(f"{MATRIX}.csv")
    draw.matrix(table, folder / picture)
    grid_results.write_rows(table, folder / rows)
    parts = [
        "# The matrix: every model on every task",
        f"`sut-experiment matrix --size {size}` makes these runs. The rows for programs: "
        f"[{rows}]({rows}).",
    ]
    lead, notes = _note(folder, MATRIX)
    parts += [*lead, f"![scores of all models on all tasks]({picture})"]
    parts += [grid_results.scores(table), *notes]
    parts += ["## Costs and runs", grid_results.costs_and_runs(table)]
    return "\n\n".join(parts) + "\n"


def _note(folder: Path, name: str) -> tuple[list[str], list[str]]:
    """The first paragraph of a page's note, and the rest under a title; empty lists for none.

    Raises:
        InputError: if it is not UTF-8 text.
    """
    path = folder / NOTES / f"{name}.md"
    text = "\n".join(read_lines(path)).strip() if path.is_file() else ""
    lead, _, rest = text.partition("\n\n")
    return [lead] if lead else [], [f"## Notes\n\n{rest.strip()}"] if rest else []


def _index(found: Sequence[Found], folder: Path, present: Sequence[str], draw: Draw) -> str:
    """Links to pages, the note, and the papers' numbers with their picture if any was run."""
    lead, notes = _note(folder, "index")
    parts = ["# Results", *lead]
    run = any(one.row is not None for one in found)
    in_table = {one.experiment.name for one in found} if run else set()
    linked = "".join(lead)
    others = [
        f"[{name}]({name}.md)"
        for name in present
        if name not in in_table and f"({name}.md)" not in linked
    ]
    if others:
        parts.append(f"Pages{' besides those in the tables' if run else ''}: {', '.join(others)}.")
    if run:
        picture = PICTURES / "claims.png"
        if draw.claims(found, folder / picture):
            parts.append(f"![our results and the papers', in per cent]({picture})")
        parts += [front_table.counts(found), *front_table.sections(found, present)]
    return "\n\n".join([*parts, *notes]) + "\n"


def _page(experiment: Experiment, groups: Sequence[Group], folder: Path, draw: Draw) -> str:
    parts = [
        f"# {experiment.name}",
        f"What it tests: {experiment.shows.strip()}. Paper: {experiment.paper}. Settings: "
        f"`sut-experiment show {experiment.name}`.",
    ]
    lead, notes = _note(folder, experiment.name)
    parts += lead
    found = [one for one in check_claims([experiment], groups) if one.row is not None]
    if found:
        parts.append(front_table.table(found))
    main = main_runs(groups)
    listed = [*main, *(group for group in groups if group not in main)]
    if main and len(set(short_names(listed))) > _MOST_CURVES:
        listed = main
    names = short_names(listed)
    summaries = tables(groups)
    own = by_group.table(main, names[: len(main)], summaries)
    by = experiment.evaluation.by
    in_paper = by is not None and any(table.by == by for table in experiment.published)
    if own and in_paper:
        head, *rest = report.by_group_section(own)
        parts += [head, _drawn(own.without_all(), folder, draw), *rest]
    for table in summaries:
        parts += [report.summary_section(table), _drawn(table, folder, draw)]
    if own and not in_paper:
        parts += report.by_group_section(own)
    picture = PICTURES / f"{experiment.name}-curves.png"
    if draw.curves(listed, folder / picture):
        text = f"![{experiment.metric} on validation sets by update]({picture})"
        parts += ["## Validation during training", text]
        if any(_DEEPER in str(group.first.trainings[""].get("valid-subset")) for group in listed):
            parts.append(_ABOUT_DEEPER)
    picture = PICTURES / f"{experiment.name}-trade-off.png"
    if draw.trade_offs(groups, folder / picture):
        text = f"![score and seconds against skipped steps]({picture})"
        parts += ["## Score against computation", text]
    return "\n\n".join([*parts, *notes, report.folded(groups)])


def _drawn(table: Table, folder: Path, draw: Draw) -> str:
    """Draw a table and write its cells into a file; returns the Markdown that shows both."""
    picture = PICTURES / f"{table.experiment}-{table.summary.name}.png"
    rows = picture.with_suffix(".csv")
    draw.table(table, folder / picture)
    write_cells(table, folder / rows)
    return f"![{table.summary.title}]({picture})\n\n[CSV]({rows})"
