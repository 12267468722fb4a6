"""What `sut-experiment list` and `show` print."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sut_fairseq.experiments.commands import words
from sut_fairseq.experiments.schema import SUMMARISED, Experiment
from sut_fairseq.experiments.settings import Choice, compose, described_size, stages

_WIDTH = 100
_NAME_WIDTH = 20  # of the names before sentences, wider where a section has longer ones


def listing(experiments: Sequence[Experiment]) -> list[list[str]]:
    """A line for each experiment, with counts to fit a terminal; `show` has the names."""
    rows = [["experiment", "splits", "models", "sizes", "paper"]]
    for one in experiments:
        counts = [str(len(one.splits)), str(len(one.models))]
        paper = one.paper.partition(" (settings")[0]
        rows.append([one.name, *counts, " ".join(one.sizes), paper])
    return rows


def describe(experiment: Experiment) -> str:
    """A description of an experiment, as text."""
    evaluation = experiment.evaluation
    how = "translation" if evaluation.kind == "translation" else f"by {evaluation.by or 'nothing'}"
    facts = {
        "shows": experiment.shows,
        "paper": experiment.paper,
        "expect": experiment.expect,
        "machine": experiment.machine,
        "time": experiment.time,
        "selected by": experiment.metric,
        "evaluated on": f"{evaluation.subset}, {how}",
        "file": str(experiment.path),
    }
    lines = [experiment.name, *(_entry(name, text) for name, text in facts.items())]
    tables = {
        "data (--split)": {
            **{name: f"sut-prepare {line}" for name, line in experiment.prepare.items()},
            **{
                name: " ".join(["drawn by the task", *words(options)])
                for name, options in experiment.generate.items()
            },
        },
        "models": experiment.models,
        "sizes": {
            name: described_size(experiment, name)
            + (f" ({', '.join(size.models)} only)" if size.models else "")
            for name, size in experiment.sizes.items()
        },
        "parts (--without)": {name: part.about for name, part in experiment.ablations.items()},
        "published": {
            f"{table.table}{f', {table.split}' if table.split else ''}, {table.subset}": " ".join(
                f"{model} {_numbers(numbers)}" for model, numbers in table.numbers.items()
            )
            for table in experiment.published
        },
        "side by side": {
            one.title: f"{SUMMARISED[one.measure]}, on {', '.join(one.splits)}"
            for one in experiment.summaries
        },
    }
    for title, table in tables.items():
        if table:
            width = max(_NAME_WIDTH, *map(len, table))
            lines += ["", title, *(_entry(name, text, width) for name, text in table.items())]
    return "\n".join(lines)


def _numbers(numbers: float | dict[str, float]) -> str:
    if isinstance(numbers, float):
        return f"{numbers:g}"
    return "(" + ", ".join(f"{group}: {number:g}" for group, number in numbers.items()) + ")"


def _entry(name: str, text: str, width: int = _NAME_WIDTH) -> str:
    start = f"  {name:<{width}} "
    return (
        textwrap.fill(
            " ".join(text.split()), _WIDTH, initial_indent=start, subsequent_indent=" " * len(start)
        )
        or start.rstrip()
    )


def settings_table(experiment: Experiment, choice: Choice) -> list[list[str]]:
    """A line for each option of each training of a run: its value, and where it is set."""
    rows = [["stage", "option", "value", "from"]]
    for stage in stages(experiment, choice):
        name = "" if stage is None else stage.name
        for option, origin in sorted(compose(experiment, choice, stage).items()):
            value = "" if origin.value is True else str(origin.value)
            rows.append([name, f"--{option}", value, origin.place])
    if not any(row[0] for row in rows[1:]):
        rows = [row[1:] for row in rows]
    return rows
