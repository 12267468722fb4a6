"""Pages of results from the folders of runs: Markdown, which `docs/results.md` is made of."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from sut_fairseq.experiments.commands import words as option_words
from sut_fairseq.experiments.evaluating import Asked
from sut_fairseq.experiments.preparing import folder_of
from sut_fairseq.experiments.reading import known
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.results import Group, Row
from sut_fairseq.experiments.running import PROGRAM_NAME
from sut_fairseq.experiments.schema import Experiment


def markdown(groups: Sequence[Group]) -> str:
    """A section for all runs with the same settings: what made them, and their results."""
    return "\n\n".join(_section(group) for group in groups) + "\n"


def rows(groups: Sequence[Group]) -> list[dict[str, str]]:
    """The rows of all tables of the page, for programs."""
    return [
        cells
        for group in groups
        for evaluated in group.evaluations()
        for cells in group.cells(group.rows(evaluated, by_group=True), evaluated[0].asked.name())
    ]


def _section(group: Group) -> str:
    parts = [f"## {group.title}", f"`{called(group)}`", _runs(group)]
    evaluations = group.evaluations()
    parts += [_results(one[0].asked, group.rows(one, by_group=True)) for one in evaluations]
    if not evaluations:
        parts.append("Not evaluated yet.")
    return "\n\n".join(parts)


def called(group: Group) -> str:
    """A command that makes the runs."""
    record = group.first
    name = record.experiment if record.experiment in known() else Path(record.experiment).name
    words = [PROGRAM_NAME, "train", name, *_data(group.experiment, Path(record.data.folder).name)]
    words += ["--models", record.model, "--size", record.size]
    if record.without:
        words += ["--without", record.without]
    if record.updates is not None:
        words += ["--updates", str(record.updates)]
    words += ["--seeds", *(str(one.seed) for one in group.runs.values())]
    return shlex.join([*words, *(["--", *option_words(record.options)] if record.options else [])])


def _data(experiment: Experiment, folder: str) -> list[str]:
    """The split, where the folder is called as `sut-experiment prepare` calls it."""
    for split in experiment.prepare:
        if folder_of(experiment, split).name == folder:
            return [] if len(experiment.prepare) == 1 else ["--split", split]
    return ["--data", folder]


def _runs(group: Group) -> str:
    header = ("run", "seed", "length", "training", "code", "data", "machine", "date")
    return _table([header, *(_run(run, record) for run, record in group.runs.items())])


def _run(run: Path, record: Record) -> tuple[str, ...]:
    last = record.sessions[-1] if record.sessions else None
    time = f"{record.seconds:,.0f} s" if record.finished() else "not finished"
    sessions = sum(session.stage == "" for session in record.sessions)
    if sessions > 1:
        time += f" in {sessions} sessions"
    return (
        *(run.name, str(record.seed), record.length, time),
        str(last.code) if last else "",
        record.data.digest,
        str(last.computer) if last else "",
        last.started.partition("T")[0] if last else "",
    )


def _results(asked: Asked, rows: Sequence[Row]) -> str:
    by = next((row.by for row in rows if row.by), None)
    seeds = list(rows[0].percent)
    several = len(seeds) > 1
    header = [by or "group"]
    if any(row.sentences for row in rows):
        header.append("sentences")
    header += [f"seed {seed}" for seed in seeds]
    header += ["mean", "deviation"] if several else []
    paper = any(row.paper is not None for row in rows)
    header += ["paper"] if paper else []
    lines = [header]
    for row in rows:
        line = [row.group]
        if "sentences" in header:
            line.append(f"{row.sentences:,}" if row.sentences else "")
        line += [f"{percent:.2f}" for percent in row.percent.values()]
        if several:
            line += [f"{row.mean:.2f}", f"{row.deviation:.2f}"]
        if paper:
            line.append("" if row.paper is None else f"{row.paper:g}")
        lines.append(line)
    return f"{_how(asked)}, in per cent:\n\n{_table(lines)}"


def _how(asked: Asked) -> str:
    """What an evaluation is of, in words."""
    words = [f"Set `{asked.subset}`"]
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
    return ", ".join(words)


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---"] * len(head)
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (head, rule, *body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
