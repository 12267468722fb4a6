"""Results by group of sentences, of the runs that say most about each model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from sut_fairseq.experiments.claims import rank
from sut_fairseq.experiments.commands import written
from sut_fairseq.experiments.evaluating import usual_measure
from sut_fairseq.experiments.published import ALL, is_usual
from sut_fairseq.experiments.results import Evaluations, Group, Row
from sut_fairseq.experiments.schema import MEASURES, Summary, less_is_better
from sut_fairseq.experiments.summaries import Line, Table


def main_runs(groups: Sequence[Group]) -> list[Group]:
    """The runs that say most about each model on each split of an experiment, and the best ones.

    Args:
        groups: of one experiment.

    Returns:
        split by split, the runs of each model that `claims` prefers, then of each model those with
        the best result on all sentences, if these are others.
    """
    experiment = groups[0].experiment
    found: defaultdict[str, defaultdict[str, list[tuple[Group, Row]]]]
    found = defaultdict(lambda: defaultdict(list))
    for group in groups:
        record = group.first
        compared = not experiment.compared or record.model in experiment.compared
        if compared and not record.without and (row := _whole(group)):
            found[record.data.split][record.model].append((group, row))
    main = []
    for split in _in_order(found, experiment.splits):
        best = []
        for model in _in_order(found[split], [*experiment.models]):
            of_model = found[split][model]
            first, row = max(of_model, key=lambda one: rank(one[0].first, one[1]))
            sign = -1 if less_is_better(row.measure) else 1
            other, _ = max(of_model, key=lambda one: sign * one[1].mean)
            main.append(first)
            best += [] if other is first else [other]
        main += best
    return main


def _in_order(names: Collection[str], order: Sequence[str]) -> list[str]:
    """Names in this order, then those that are not in it."""
    return [name for name in dict.fromkeys((*order, *names)) if name in names]


def _usual(group: Group) -> Evaluations | None:
    """The evaluation of finished runs on the data that the experiment's file describes."""
    done = group.finished()
    if done is None or not is_usual(group.experiment, group.first.data):
        return None
    return done.usual()


def _whole(group: Group) -> Row | None:
    """The result on all sentences, or the first score of translations; None without any."""
    usual = _usual(group)
    if usual is None:
        return None
    rows = usual.rows_of(usual.measures()[0])
    of_all = [row for row in rows if row.group == ALL]
    return next(iter(of_all or rows), None)


def table(
    main: Sequence[Group], names: Sequence[str], summaries: Sequence[Table] = ()
) -> Table | None:
    """The results of the main runs by group; None if no groups are left to show.

    Args:
        main: from `main_runs`.
        names: of these, as pictures have them.
        summaries: that the page shows, too; splits of which they show the groups are left out.
    """
    lines = list(_lines(main, names, summaries))
    if not lines:
        return None
    experiment = main[0].experiment
    by = experiment.evaluation.by  # None: of translations, by score
    title = f"Results by {by.replace('_', ' ')}" if by else "Results"
    splits = list(dict.fromkeys(line.split for line in lines))
    summary = Summary(title=title, splits=splits)
    measure = lines[0].rows[0].measure
    of = f"{usual_measure(experiment)}, " if measure == "percent" else ""
    return Table(summary, experiment.name, of + MEASURES[measure], lines)


def _lines(
    main: Sequence[Group], names: Sequence[str], summaries: Sequence[Table]
) -> Iterator[Line]:
    taken = set()
    for group, name in zip(main, names, strict=True):
        usual, split = _usual(group), group.first.data.split
        if usual is None:
            continue
        measure = usual.measures()[0]
        if any(_shows_groups(one, split, measure) for one in summaries):
            continue
        rows = usual.rows_of(measure)
        if len([row for row in rows if row.group != ALL]) > 1:
            if (split, name) in taken:  # what sets them apart is no option
                name += f" ({next(iter(group.runs)).name})"
            taken.add((split, name))
            yield Line(name, split, rows)


def _shows_groups(summary: Table, split: str, measure: str) -> bool:
    """Whether a summary has the groups of a split, or the one of them that the paper has."""
    if summary.summary.by_split:
        return measure == summary.summary.measure and split in summary.summary.of_split
    return measure == summary.summary.measure and any(line.split == split for line in summary.lines)


def short_names(groups: Sequence[Group]) -> list[str]:
    """A name for each group: its model, and what sets it apart from others with this model.

    Groups that differ only in their data have the same name.
    """
    lengths: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for group in groups:
        lengths[group.first.model, group.first.size].add(group.first.planned)
    settings = []
    for group in groups:
        record = group.first
        without = f"without {record.without}" if record.without else ""
        told = record.own_length or len(lengths[record.model, record.size]) > 1
        length = record.planned if told else ""
        options = written(record.options)
        settings.append((record.model, f"size {record.size}", without, length, options))
    names = []
    for model, *own in settings:
        columns = zip(*(others for name, *others in settings if name == model))
        apart = [one for one, column in zip(own, columns) if one and len(set(column)) > 1]
        names.append(", ".join([model, *apart]))
    return names
