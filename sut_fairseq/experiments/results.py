"""Combined results of runs that differ only in the seed, beside the paper's."""

from __future__ import annotations

import shlex
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.commands import written
from sut_fairseq.experiments.evaluating import Asked, Evaluated, read_evaluations, usual_column
from sut_fairseq.experiments.published import ALL, published
from sut_fairseq.experiments.reading import is_file, read
from sut_fairseq.experiments.records import Record, read_record
from sut_fairseq.experiments.schema import Experiment, shown

COLUMNS = (
    *("data", "split", "model", "size", "changes", "subset", "group", "measure", "first run"),
    *("seeds", "each", "mean", "deviation", "paper"),
)


@dataclass(frozen=True)
class Row:
    """Results on one group of sentences.

    Attributes:
        measure: which result, a key of `SUMMARISED`, or `seconds`.
        subset: which set.
        by: column that makes the groups, if any.
        group: the group.
        sentences: how many it has; None where that is not counted.
        results: by seed.
        paper: the paper's number, if it has one.
    """

    measure: str
    subset: str
    by: str | None
    group: str
    sentences: int | None
    results: dict[int, float]
    paper: float | None

    def __str__(self) -> str:
        deviation = "" if self.deviation is None else f" ± {shown(self.measure, self.deviation)}"
        return shown(self.measure, self.mean) + deviation

    @property
    def mean(self) -> float:
        """Mean over all seeds."""
        return statistics.fmean(self.results.values())

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for a single seed."""
        values = list(self.results.values())
        return statistics.stdev(values) if len(values) > 1 else None

    def figures(self, text: Callable[[float], str]) -> dict[str, str]:
        """The results as text by column, of which `text` makes that of our numbers."""
        return {
            "seeds": " ".join(map(str, self.results)),
            "each": " ".join(map(text, self.results.values())),
            "mean": text(self.mean),
            "deviation": "" if self.deviation is None else text(self.deviation),
            "paper": "" if self.paper is None else f"{self.paper:g}",
        }


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed.

    Attributes:
        experiment: of all of them.
        runs: record by folder, in the order of their seeds.
    """

    experiment: Experiment
    runs: dict[Path, Record]

    @property
    def first(self) -> Record:
        """The record of one of them."""
        return next(iter(self.runs.values()))

    @property
    def title(self) -> str:
        """Experiment, data, model, size, what is left out and what else distinguishes its runs."""
        record = self.first
        name = self.experiment.name
        dataset = "" if record.data.dataset == name else record.data.dataset
        data = " ".join(part for part in (dataset, record.data.split) if part)
        without = [f"without {record.without}"] if record.without else []
        size = f"size {record.size}"
        words = [f"{name} ({data})" if data else name, record.model, size, *without]
        return ", ".join([*words, *self._changes()])

    def _changes(self) -> list[str]:
        """How the runs differ from their size: in length and options."""
        record = self.first
        length = [record.length] if record.own_length else []
        return length + ([written(record.options)] if record.options else [])

    def finished(self) -> Group | None:
        """The group of the finished runs; None if there are none."""
        runs = {run: record for run, record in self.runs.items() if record.finished()}
        return replace(self, runs=runs) if runs else None

    def evaluations(self) -> list[Evaluations]:
        """The evaluations, each of all runs that were evaluated in the same way, the usual first.

        The group of an evaluation leaves out runs without it.
        """
        found: defaultdict[tuple[str, ...], dict[Path, Evaluated]] = defaultdict(dict)
        for run, record in self.runs.items():
            for one in read_evaluations(run, record):
                found[one.asked.name(), one.data.digest, one.added][run] = one
        usual = self.experiment.evaluation.subset

        def rank(one: Evaluations) -> tuple[bool, bool, bool, bool]:
            asked = one.asked
            groups = asked.by != usual_column(self.experiment)
            return not asked.plain, asked.subset != usual, groups, asked.search

        evaluations = [
            Evaluations(
                replace(self, runs={run: self.runs[run] for run in of_run}), [*of_run.values()]
            )
            for of_run in found.values()
        ]
        return sorted(evaluations, key=rank)

    def usual(self) -> Evaluations | None:
        """The evaluation on the experiment's set, as trained, in its groups; None without one."""
        wanted = (self.experiment.evaluation.subset, usual_column(self.experiment))
        for one in self.evaluations():
            if one.asked.plain and (one.asked.subset, one.asked.by) == wanted:
                return one
        return None

    def on_subset(self, subset: str) -> Evaluations:
        """The evaluation of all runs on a set, as trained, in the usual groups if possible.

        Raises:
            InputError: if the runs have not all been evaluated on it in the same groups.
        """
        for one in self.evaluations():
            all_of_them = one.group.runs.keys() == self.runs.keys()
            if all_of_them and one.asked.plain and one.asked.subset == subset:
                return one
        option = "" if subset == self.experiment.evaluation.subset else f" --subset {subset}"
        for run, record in self.runs.items():
            plain = [one.asked for one in read_evaluations(run, record) if one.asked.plain]
            if all(asked.subset != subset for asked in plain):
                raise InputError(
                    f"{run} has no result on `{subset}`: run `sut-experiment evaluate "
                    f"{shlex.quote(str(run))}{option}` first."
                )
        folders = shlex.join(map(str, self.runs))
        raise InputError(
            f"these runs have no results on the same `{subset}` in the same groups: run "
            f"`sut-experiment evaluate {folders}{option}` first."
        )

    def cells(self, rows: Sequence[Row], subset: str) -> list[dict[str, str]]:
        """Rows as text by column (`COLUMNS`); `subset` is the text of that column."""
        run, record = next(iter(self.runs.items()))
        about = {
            "data": record.data.dataset or self.experiment.name,
            "split": record.data.split,
            "model": record.model + (f" without {record.without}" if record.without else ""),
            "size": record.size,
            "changes": ", ".join(self._changes()),
            "subset": subset,
        }
        return [
            {
                **about,
                "group": row.group,
                "measure": row.measure,
                "first run": run.name,
                **row.figures(partial(shown, row.measure)),
            }
            for row in rows
        ]


@dataclass(frozen=True)
class Evaluations:
    """Runs that were evaluated in the same way.

    Attributes:
        group: the runs.
        each: the evaluation of each of them.
    """

    group: Group
    each: Sequence[Evaluated]

    @property
    def asked(self) -> Asked:
        """What was asked for."""
        return self.each[0].asked

    def measures(self) -> list[str]:
        """The result columns that they have."""
        return self.each[0].measures()

    def rows(self, by_group: bool = True) -> list[Row]:
        """Results on all sentences, or group by group and then all, measure by measure."""
        return [row for measure in self.measures() for row in self.rows_of(measure, by_group)]

    def rows_of(self, measure: str, by_group: bool = True) -> list[Row]:
        """The rows of one measure."""
        asked, first = self.asked, self.each[0]
        paper: dict[str, float] = {}
        if asked.plain and measure == self.measures()[0]:
            record = self.group.first
            about = (asked.subset, record.model, asked.by, record.without)
            paper = published(self.group.experiment, first.data, *about)
        results = [one.values(measure) for one in self.each]
        groups = [name for name in results[0] if all(name in result for result in results)]
        if ALL in groups and not by_group:
            groups = [ALL]
        sentences = first.sentences()
        seeds = [record.seed for record in self.group.runs.values()]
        return [
            Row(
                measure=measure,
                subset=asked.subset,
                by="alpha_threshold" if asked.thresholds else asked.by,
                group=group,
                sentences=sentences.get(group),
                results={seed: result[group] for seed, result in zip(seeds, results)},
                paper=paper.get(group),
            )
            for group in groups
        ]


def collect(runs: Sequence[Path]) -> list[Group]:
    """Group the runs that differ only in the seed, in order of first appearance.

    Raises:
        InputError: for a folder that is not a run, or two runs with the same settings and seed.
    """
    found: defaultdict[tuple[object, ...], dict[Path, Record]] = defaultdict(dict)
    for run in dict.fromkeys(path.resolve() for path in runs):
        record = read_record(run)
        if is_file(record.experiment):  # kept runs name it as seen from the working folder
            path, here = Path(record.experiment).resolve(), Path.cwd()
            seen = path.relative_to(here) if path.is_relative_to(here) else path
            record = replace(record, experiment=str(seen))
        alike = found[record.key()]
        twin = next((path for path, one in alike.items() if one.seed == record.seed), None)
        if twin is not None:
            raise InputError(
                f"{twin} and {run} are runs of the same settings and seed ({record.seed}): leave "
                "one of them out."
            )
        alike[run] = record
    return [
        Group(
            experiment=read(next(iter(group.values())).experiment),
            runs=dict(sorted(group.items(), key=lambda item: item[1].seed)),
        )
        for group in found.values()
    ]


def unfinished(run: Path) -> str:
    """The message shown with results of a run whose training is not finished."""
    return f"{run} is not finished: its results are those of the training so far."


def mean_of(several: Sequence[Sequence[Row]]) -> list[Row]:
    """Mean over data, by group and seed; a group or seed that is not in all of them is left out."""
    by_group: list[Mapping[str, Row]] = [{row.group: row for row in rows} for rows in several]
    means = []
    for group, first in by_group[0].items():
        if all(group in rows for rows in by_group):
            results = [rows[group].results for rows in by_group]
            seeds = [seed for seed in first.results if all(seed in of for of in results)]
            mean = {seed: statistics.fmean(of[seed] for of in results) for seed in seeds}
            if mean:
                means.append(replace(first, results=mean, sentences=None))
    return means


def table(groups: Sequence[Group], subsets: Sequence[str], by_group: bool) -> list[dict[str, str]]:
    """Rows for all runs with the same settings, set by set.

    Args:
        groups: of runs.
        subsets: which sets; none: that of each experiment.
        by_group: whether groups of sentences have rows of their own.
    """
    return [
        cells
        for group in groups
        for subset in subsets or [group.experiment.evaluation.subset]
        for cells in group.cells(group.on_subset(subset).rows(by_group), subset)
    ]
