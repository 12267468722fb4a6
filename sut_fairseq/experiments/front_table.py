"""The first table of the results: the papers' numbers and ours, paper by paper, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sut_data.tables import counted
from sut_fairseq.experiments import report
from sut_fairseq.experiments.claims import Found, Verdict
from sut_fairseq.experiments.commands import written
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.schema import MEASURES, UPDATES, Experiment, less_is_better, whole

_FIXED = "\u00a0"  # a space at which no line ends
_HEADER = ("result", "paper", "ours", "bar", "reached", "seeds", "our training", "the paper's")


def sections(found: Sequence[Found], present: Sequence[str]) -> list[str]:
    """A table for each paper, and below it the sizes and commands of our runs.

    Args:
        found: sorted by paper.
        present: names of the experiments that have a page.
    """
    parts = []
    for paper, claims in groupby(found, key=lambda one: one.experiment.citation):
        of_paper = list(claims)
        parts += [f"## {paper}", table(of_paper, present)]
        if commands := _commands(of_paper):
            parts.append(report.fold("Sizes and commands", commands))
    return parts


def table(found: Sequence[Found], present: Sequence[str] | None = None) -> str:
    """A row for each number.

    Args:
        found: the numbers.
        present: names of the experiments that have a page; None: name no experiments.
    """
    return report.markdown_table([_HEADER, *(_row(one, present) for one in found)])


def counts(found: Sequence[Found]) -> str:
    """How many numbers are reached, in one sentence."""
    number = {verdict: sum(one.verdict is verdict for one in found) for verdict in Verdict}
    return "; ".join(f"{verdict.value}: {count}" for verdict, count in number.items()) + "."


def _row(found: Found, present: Sequence[str] | None) -> tuple[str, ...]:
    claim, row = found.claim, found.row
    sign = "≤" if less_is_better(claim.measure) else "≥"
    paper = f"{claim.paper:g}" if claim.paper is not None else "–"
    label = claim.shows
    if present is not None:
        name = found.experiment.name
        label = f"{f'[{name}]({name}.md)' if name in present else name}: {label}"
    if claim.measure != "percent":
        label += f", {MEASURES[claim.measure].split(',')[0]}"
    mark = found.verdict.value
    if present is not None:
        mark = mark.partition(" ")[0]  # the first page says what they stand for
    ours, seeds, budget = "", "", ""
    if row is not None:
        ours, seeds = str(row).replace(" ", _FIXED), str(len(row.results))
        budget = _budget(found.experiment, found.groups[0].first)
    return label, paper, ours, f"{sign}{_FIXED}{claim.bar:g}", mark, seeds, budget, claim.budget


def _budget(experiment: Experiment, record: Record) -> str:
    """Model, length of training and options of the user's own in a few words."""
    size = experiment.sizes.get(record.size)
    papers = "the paper's"
    model = papers if record.size == "paper" else f"size `{record.size}`"
    parts = [(size and size.budget) or model]
    if parts != [papers] or record.own_length:
        parts.append(_length(record))
    if record.options:
        parts.append(f"`{written(record.options)}`")
    return ", ".join(parts)


def _length(record: Record) -> str:
    """Updates or epochs; the tokens or sentences of an update, where known; updates before."""
    options = record.trainings[""]
    updates = whole(options.get("max-update"))
    if updates is None:
        return record.planned
    batch = ""
    several = record.sessions and len(record.sessions[-1].computer.gpus) > 1
    for name, unit in (("batch-size", ""), ("max-tokens", " tokens")):
        number, times = whole(options.get(name)), whole(options.get("update-freq", 1))
        if number and times and not several:
            batch = f" of {number * times:,}{unit}"
    before = (record.all_updates or updates) - updates
    return f"{record.planned}{batch}" + (f", after {before:,} in earlier stages" if before else "")


def _commands(found: Sequence[Found]) -> str:
    """Of all runs in a table: what they show, their size and their commands."""
    shown: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        if one.row is None:
            continue
        seeds = one.row.results
        size = report.capital(_size(one.experiment, one.groups[0].first))
        about = "; ".join(filter(None, (size, counted(len(seeds), "seed"))))
        commands = "\n".join(report.called(group, seeds) for group in one.groups)
        shown.setdefault((one.experiment.name, about, commands), []).append(one.claim.shows)
    return "\n\n".join(
        f"**{name}: {'; '.join(claims)}.** {about}:\n\n```sh\n{commands}\n```"
        for (name, about, commands), claims in shown.items()
    )


def _size(experiment: Experiment, record: Record) -> str:
    """Size and length of training, and what the run has of its own."""
    if record.size not in experiment.sizes:
        return record.length
    size = experiment.sizes[record.size]
    about = size.described(record.trainings)
    parts = [about] if about else []
    told = UPDATES in size.lengths_told
    own = [record.own_length] if record.own_length and not told else []
    if record.options:
        own.append(f"with `{written(record.options)}`")
    if own:
        parts.append(f"{'but ' if about else ''}{', '.join(own)}")
    if told and record.planned_before:
        parts.append(f"{record.former_plans} (`{record.change_option}`)")
    return "; ".join(parts)
