"""Pages of results from the folders of runs, in Markdown; `docs/results` is made of them."""

from __future__ import annotations

import html
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sut_fairseq.experiments.commands import words as option_words
from sut_fairseq.experiments.evaluating import Asked
from sut_fairseq.experiments.preparing import folder_of
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.published import ALL
from sut_fairseq.experiments.reading import is_file
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.results import Evaluations, Group, Row
from sut_fairseq.experiments.running import PROGRAM_NAME
from sut_fairseq.experiments.schema import MEASURES, Experiment, shown
from sut_fairseq.experiments.summaries import Table, tables

_FOLDED = (
    "Each line stands for runs that differ only in the seed: open it for their command, code, "
    "data, machine, time and results by group. After the colon: the result on the whole set, with "
    "the deviation over seeds and the paper's number in brackets."
)
_SHORT = 16  # lines of a table that need not be folded
_MAIN_RUNS = (
    "Of each model the runs that say most (of size `paper` if there are any, else with several "
    "seeds, else the longest), and the best ones if these are others:"
)
_COSTS = {
    "skipped": ("skipped", "{:.1%}"),
    "encoder_depth": ("encoder depth", "{:.2f}"),
    "decoder_depth": ("decoder depth", "{:.2f}"),
    "seconds": ("seconds", "{:.1f}"),
}


def markdown(groups: Sequence[Group]) -> str:
    """The summaries, then a section for all runs with the same settings: command and results."""
    sections = [f"## {group.title}\n\n{_section(group)}" for group in groups]
    return "\n\n".join([*map(summary_section, tables(groups)), *sections]) + "\n"


def folded(groups: Sequence[Group]) -> str:
    """The sections folded, in HTML: each shows its title and result until opened."""
    sections = [
        fold(html.escape(_headline(group), quote=False), _section(group)) for group in groups
    ]
    return "\n\n".join([f"## Runs\n\n{_FOLDED}", *sections]) + "\n"


def _headline(group: Group) -> str:
    """The title, and the result on the whole usual set if there is one."""
    for one in group.evaluations():
        if not one.asked.plain or one.asked.subset != group.experiment.evaluation.subset:
            continue
        for row in one.rows_of(one.measures()[0], by_group=False):
            if row.group == ALL:
                return f"{group.title}: {_cell(row)}"
    return group.title


def rows(groups: Sequence[Group]) -> list[dict[str, str]]:
    """The rows of all tables of the page, for programs."""
    return [
        cells
        for group in groups
        for one in group.evaluations()
        for cells in one.group.cells(one.rows(), one.asked.name())
    ]


def summary_section(table: Table) -> str:
    """A table of the paper: our numbers with deviations, the paper's in brackets."""
    summary = table.summary
    present = table.groups if summary.by_split else [line.split for line in table.lines]
    listed = [split for split in summary.splits if summary.mean_of_splits or split in present]
    splits = ", ".join(f"`{split}`" for split in listed)
    over = f"mean over {splits}" if summary.mean_of_splits else splits
    how = "mean and deviation of all seeds"
    if any(row.paper is not None for line in table.lines for row in line.rows):
        how += ", in brackets the paper's"
    by_split = len(summary.splits) > 1 and not (summary.mean_of_splits or summary.by_split)
    lines = [["model", *(["data"] if by_split else []), "number of seeds", *table.groups]]
    for line in table.lines:
        rows = {row.group: row for row in line.rows}
        cells = [line.model, *([line.split] if by_split else [])]
        seeds = {len(row.results) for row in line.rows}
        cells.append(" to ".join(str(count) for count in sorted({min(seeds), max(seeds)})))
        lines.append([*cells, *(_cell(rows.get(group)) for group in table.groups)])
    about = f"{capital(table.measure)}; {over} ({how}):"
    return f"## {table.experiment}, {summary.title}\n\n{about}\n\n{markdown_table(lines)}"


def by_group_section(table: Table) -> list[str]:
    """The table of `by_group`: a line for each group, a column for each of the runs.

    The first part is its title.
    """
    how = "mean and deviation of all seeds"
    if any(row.paper is not None for line in table.lines for row in line.rows):
        how += ", in brackets the paper's"
    several = len(table.summary.splits) > 1
    parts = [f"## {table.summary.title}", f"{capital(table.measure)} ({how}). {_MAIN_RUNS}"]
    for split in table.summary.splits:
        lines = [line for line in table.lines if line.split == split]
        by_line = [{row.group: row for row in line.rows} for line in lines]
        names = [name for name in table.groups if any(name in rows for rows in by_line)]
        cells = [[_literal(name), *(_cell(rows.get(name)) for rows in by_line)] for name in names]
        text = markdown_table([["", *(_literal(line.model) for line in lines)], *cells])
        short = len(names) <= _SHORT
        if not several and short:
            parts.append(text)
        else:
            opened = short and split == table.summary.splits[0]
            title = f"<code>{html.escape(split or 'default')}</code>"
            parts.append(fold(title, text, opened))
    return parts


def fold(title: str, text: str, opened: bool = False) -> str:
    """Markdown below a title, in HTML, that readers open and close."""
    # The attribute is for MkDocs; GitHub reads Markdown after a blank line anyway.
    state = "open " if opened else ""
    return f'<details {state}markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>'


def _literal(text: str) -> str:
    """A name as Markdown that shows it as it is."""
    return html.escape(text, quote=False).replace("*", r"\*")


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return str(row) if row.paper is None else f"{row} ({row.paper:g})"


def _section(group: Group) -> str:
    parts = [f"`{called(group)}`", _runs(group)]
    evaluations = group.evaluations()
    parts += [
        _results(one.asked, measure, found, _costs(one))
        for one in evaluations
        for measure in one.measures()
        if (found := one.rows_of(measure))
    ]
    evaluated = {run for one in evaluations for run in one.group.runs}
    if missing := [run.name for run in group.runs if run not in evaluated]:
        parts.append(f"Not evaluated yet: {', '.join(missing)}.")
    return "\n\n".join(parts)


def called(group: Group, seeds: Collection[int] | None = None) -> str:
    """A command that makes the runs, or those of some seeds."""
    record = group.first
    name = record.experiment
    name = Path(name).name if is_file(name) else name
    words = [PROGRAM_NAME, "train", name, *_data(group.experiment, record.data)]
    words += ["--models", record.model, "--size", record.size]
    if record.without:
        words += ["--without", record.without]
    if record.updates is not None:
        words += ["--updates", str(record.updates)]
    if record.planned_before:
        words.append(record.change_option)
    there = [one.seed for one in group.runs.values()]
    words += ["--seeds", *(str(seed) for seed in there if seeds is None or seed in seeds)]
    return shlex.join([*words, *(["--", *option_words(record.options)] if record.options else [])])


def _data(experiment: Experiment, data: Data) -> list[str]:
    """The options that name the data: --split for drawn data and default folders, else --data."""
    folder = Path(data.folder).name
    for split in experiment.splits:
        if folder_of(experiment, split).name == folder or (not folder and split == data.split):
            return [] if len(experiment.splits) == 1 else ["--split", split]
    return ["--data", folder]


def _runs(group: Group) -> str:
    header = ("run", "seed", "length", "training", "code", "data", "machine", "date")
    return markdown_table([header, *(run_cells(run, record) for run, record in group.runs.items())])


def run_cells(run: Path, record: Record) -> tuple[str, ...]:
    """A run in a table: name, seed, length, time, code, data, machine, date."""
    last = record.sessions[-1] if record.sessions else None
    time = f"{record.seconds:,.0f} s" if record.finished() else "not finished"
    sessions = sum(session.stage == "" for session in record.sessions)
    if sessions > 1:
        time += f" in {sessions} sessions"
    return (
        *(run.name, str(record.seed), record.length, time),
        *(record.codes, record.data.digest, record.computers),
        last.started.partition("T")[0] if last else "",
    )


def _costs(sweep: Evaluations) -> dict[str, dict[str, str]]:
    """What a sweep measured besides scores, by name and threshold, as means over seeds."""
    costs: dict[str, dict[str, str]] = {}
    if sweep.asked.thresholds:
        for measure, (name, form) in _COSTS.items():
            if rows := sweep.rows_of(measure):
                costs[name] = {row.group: form.format(row.mean) for row in rows}
    return costs


def _results(
    asked: Asked, measure: str, rows: Sequence[Row], costs: Mapping[str, Mapping[str, str]]
) -> str:
    """The rows of one measure as a table, of which each column is made with its heading."""
    by = next((row.by for row in rows if row.by), None)
    columns = [[by or "group", *(_literal(row.group) for row in rows)]]
    if any(row.sentences for row in rows):
        counts = (f"{row.sentences:,}" if row.sentences else "" for row in rows)
        columns.append(["sentences", *counts])
    seeds = list(rows[0].results)
    for seed in seeds:
        columns.append([f"seed {seed}", *(shown(measure, row.results[seed]) for row in rows)])
    if len(seeds) > 1:
        columns.append(["mean", *(shown(measure, row.mean) for row in rows)])
        columns.append(["deviation", *(shown(measure, row.deviation or 0.0) for row in rows)])
    if any(row.paper is not None for row in rows):
        numbers = ("" if row.paper is None else f"{row.paper:g}" for row in rows)
        columns.append(["paper", *numbers])
    for name, cost in costs.items():
        columns.append([name, *(cost.get(row.group, "") for row in rows)])
    about = ", ".join([f"Set `{asked.subset}`", *details(asked), MEASURES[measure]])
    return f"{about}:\n\n{markdown_table(list(zip(*columns)))}"


def details(asked: Asked) -> list[str]:
    """What distinguishes an evaluation from others on the same set, in words."""
    words = []
    if asked.data:
        words.append(f"data `{Path(asked.data).name}`")
    if asked.alpha_threshold is not None:
        words.append(f"halting threshold {asked.alpha_threshold:g}")
    if asked.steps is not None:
        words.append(f"{asked.steps} steps")
    if asked.search:
        words.append("generated")
    if asked.max_sentences is not None:
        words.append(f"the first {asked.max_sentences} sentences")
    return words


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---"] * len(head)
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (head, rule, *body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
