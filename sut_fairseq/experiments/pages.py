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
from sut_data.tables import counted
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import grid_results, report
from sut_fairseq.experiments.claims import Found, Verdict, check_claims
from sut_fairseq.experiments.commands import written
from sut_fairseq.experiments.grid import read_grid
from sut_fairseq.experiments.reading import MATRIX, columns, is_ours, known, read
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.results import Group
from sut_fairseq.experiments.schema import MEASURES, UPDATES, Experiment, less_is_better
from sut_fairseq.experiments.summaries import Table, tables, write_cells

INDEX = "index.md"
NOTES = Path("notes")
PICTURES = Path("pictures")
_DEEPER = "valid_deep"
_ABOUT_DEEPER = (
    f"Validation during training: `valid` is like the training data, `{_DEEPER}` longer or deeper, "
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
    """Links to pages, the note, and the papers' table with its picture if any of it was run."""
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
        parts.append(f"Pages{' besides those in the table' if run else ''}: {', '.join(others)}.")
    if run:
        header = (
            *("paper", "experiment", "result", "paper's number", "ours", ""),
            *("our size and budget", "paper's", "runs"),
        )
        picture = PICTURES / "claims.png"
        if draw.claims(found, folder / picture):
            parts.append(f"![our results and the papers', in per cent]({picture})")
        lines = [header, *(_claim(one, present) for one in found)]
        parts += [report.markdown_table(lines), _counts(found)]
    return "\n\n".join([*parts, *notes]) + "\n"


def _claim(found: Found, present: Sequence[str]) -> tuple[str, ...]:
    experiment, claim, row = found.experiment, found.claim, found.row
    source, name = experiment.citation, experiment.name
    link = f"[{name}]({name}.md)" if name in present else name
    sign = "≤" if less_is_better(claim.measure) else "≥"
    what = claim.shows if claim.measure == "percent" else f"{claim.shows}, {_short(claim.measure)}"
    paper = f"{claim.paper:g}" if claim.paper is not None else "–"
    bar = f"(bar {sign} {claim.bar:g})"
    if row is None:
        return source, link, what, paper, bar, found.verdict.value, "", claim.budget, ""
    record = found.groups[0].first
    commands = ", ".join(f"`{report.called(group, row.results)}`" for group in found.groups)
    return (
        source,
        link,
        what,
        paper,
        f"{row} {bar}",
        found.verdict.value,
        _size(experiment, record),
        claim.budget,
        f"{counted(len(row.results), 'seed')}: {commands}",
    )


def _size(experiment: Experiment, record: Record) -> str:
    """Size and length of training, and what the run has of its own."""
    if record.size not in experiment.sizes:
        return record.length
    size = experiment.sizes[record.size]
    parts = [size.described(record.trainings)]
    told = UPDATES in size.lengths_told
    own = [record.own_length] if record.own_length and not told else []
    if record.options:
        own.append(f"with `{written(record.options)}`")
    if own:
        parts.append(f"but {', '.join(own)}")
    if told and record.planned_before:
        parts.append(f"{record.former_plans} (`{record.change_option}`)")
    return "; ".join(parts)


def _short(measure: str) -> str:
    return MEASURES[measure].split(",")[0]


def _counts(found: Sequence[Found]) -> str:
    counts = {verdict: sum(one.verdict is verdict for one in found) for verdict in Verdict}
    return "; ".join(f"{verdict.value}: {count}" for verdict, count in counts.items()) + "."


def _page(experiment: Experiment, groups: Sequence[Group], folder: Path, draw: Draw) -> str:
    parts = [
        f"# {experiment.name}",
        f"What it tests: {experiment.shows.strip()}. Paper: {experiment.paper}. Settings: "
        f"`sut-experiment show {experiment.name}`.",
    ]
    lead, notes = _note(folder, experiment.name)
    parts += lead
    picture = PICTURES / f"{experiment.name}-curves.png"
    if draw.curves(groups, folder / picture):
        parts.append(f"![{experiment.metric} on validation sets by update]({picture})")
        if any(_DEEPER in str(group.first.trainings[""].get("valid-subset")) for group in groups):
            parts.append(_ABOUT_DEEPER)
    for table in tables(groups):
        picture = PICTURES / f"{experiment.name}-{table.summary.name}.png"
        rows = picture.with_suffix(".csv")
        draw.table(table, folder / picture)
        write_cells(table, folder / rows)
        parts += [
            report.summary_section(table),
            f"![{table.summary.title}]({picture})",
            f"[CSV]({rows})",
        ]
    picture = PICTURES / f"{experiment.name}-trade-off.png"
    if draw.trade_offs(groups, folder / picture):
        parts.append(f"![score and seconds against skipped steps]({picture})")
    return "\n\n".join([*parts, *notes, report.folded(groups)])
