"""Evaluations of runs by groups of sentences: calls of `sut-evaluate`, and their stored results."""

from __future__ import annotations

import csv
import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path

from sut_fairseq.errors import InputError
from sut_fairseq.experiments import json_files, provenance
from sut_fairseq.experiments.provenance import Code, Data
from sut_fairseq.experiments.published import ALL, published
from sut_fairseq.experiments.records import Record
from sut_fairseq.experiments.schema import MEASURES, SUMMARISED, Experiment

CHECKPOINTS = {name: Path("checkpoints", f"checkpoint_{name}.pt") for name in ("best", "last")}
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999)
SECONDS = "seconds"  # of a sweep
SCORE = "score"  # translations have one row for each of their scores
SUFFIX = ".evaluation.json"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The evaluation that a user asks for.

    Attributes:
        data: a prepared folder other than that of the training.
        subset: which set.
        by: column that makes groups.
        alpha_threshold: halting threshold; None: that of the training.
        thresholds: halting thresholds of a sweep.
        steps: of the encoder; None: as many as in the training.
        search: generate, instead of running the model on the references.
        max_sentences: evaluate only so many, the first ones.
    """

    data: str | None = None
    subset: str = "test"
    by: str | None = None
    alpha_threshold: float | None = None
    thresholds: list[float] = field(default_factory=list)
    steps: int | None = None
    search: bool = False
    max_sentences: int | None = None

    @property
    def plain(self) -> bool:
        """Whether the model runs as it was trained, on all sentences of its own data."""
        changed = (self.alpha_threshold, self.steps, self.max_sentences, self.data)
        return not self.thresholds and all(one is None for one in changed)

    def name(self) -> str:
        """Name of the files with its results, without the ending."""
        parts = [
            self.subset,
            f"by-{self.by}" if self.by else "",
            "" if self.alpha_threshold is None else _exactly(self.alpha_threshold),
            "thresholds" if self.thresholds else "",
            *(map(_exactly, self.thresholds) if self.thresholds != list(THRESHOLDS) else []),
            f"{self.steps}-steps" if self.steps else "",
            "search" if self.search else "",
            f"first-{self.max_sentences}" if self.max_sentences else "",
            Path(self.data).name if self.data else "",
        ]
        return "-".join(part for part in parts if part)


def _exactly(number: float) -> str:
    """A short text that reads back as the same number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The file of an evaluation.

    Attributes:
        asked: what was asked for.
        data: what the model was run on.
        added: a digest of the set if it was added to the folder after it was made, since the digest
            in `data` leaves added sets out; otherwise empty.
        measure: what `percent` measures, in words.
        rows: cells by column, as in the CSV file; `group` and `percent` (of a regression
            `absolute_error`) are among the columns.
        code: that ran it.
        when: time in UTC when it began, before the checkpoint was read.
    """

    asked: Asked
    data: Data
    added: str = ""
    measure: str
    rows: list[dict[str, str]]
    code: Code
    when: str

    def measures(self) -> list[str]:
        """The result columns (keys of `MEASURES`) that the rows have."""
        return [name for name in MEASURES if any(row.get(name) for row in self.rows)]

    def values(self, measure: str = "percent") -> dict[str, float]:
        """Results by group, or of a sweep by threshold on all sentences. Rows may lack them."""
        rows = [row for row in self.rows if row.get(measure)]
        if not self.asked.thresholds:
            return {row["group"]: float(row[measure]) for row in rows}
        several = len({row["mode"] for row in self.rows}) > 1
        named = ("mode", "alpha_threshold") if several else ("alpha_threshold",)
        return {
            " ".join(row[name] for name in named): float(row[measure])
            for row in rows
            if row["group"] == ALL
        }

    def sentences(self) -> dict[str, int]:
        """Number of sentences by group, where it is counted."""
        if self.asked.thresholds:
            return {}
        return {row["group"]: int(row["sentences"]) for row in self.rows if row.get("sentences")}


def usual_measure(experiment: Experiment) -> str:
    """What the percentages of its evaluations measure, in words."""
    if experiment.evaluation.kind == "translation":
        return "BLEU and chrF"
    return _measure_of_groups(experiment)


def _measure_of_groups(experiment: Experiment) -> str:
    """What the percentages of `sut-evaluate` measure, in words."""
    return "exact match" if experiment.task.startswith("translation") else "accuracy"


def usual_column(experiment: Experiment) -> str | None:
    """The column that makes the groups of an evaluation by default."""
    return SCORE if experiment.evaluation.kind == "translation" else experiment.evaluation.by


def checkpoint_of(run: Path, record: Record, experiment: Experiment) -> Path:
    """The checkpoint that is evaluated.

    Raises:
        InputError: if the run has none yet, or none any more.
    """
    file = CHECKPOINTS[experiment.evaluation.checkpoint]
    if not (run / file).is_file():
        remedy = "train first"
        if record.finished():
            remedy = "it is trained, so put the file back, or train again with another --out"
        raise InputError(f"{run} has no {file}: {remedy}.")
    return run / file


def data_of(record: Record, other: str | Path | None) -> Data:
    """The data that a run is evaluated on: another prepared folder, or that of its training.

    Raises:
        InputError: if there is no such folder, or that of the training holds other data by now.
    """
    if other is not None:
        return provenance.describe_data(Path(other))
    data = provenance.describe_data(Path(record.data.folder))
    if data.digest != record.data.digest:
        raise InputError(
            f"{data.folder} holds other data than at the time of the training: prepare them again "
            f"as they were, or evaluate on what is there now with --data {data.folder}."
        )
    return data


def is_its_own(record: Record, data: Data, subset: str) -> bool:
    """Whether data are those of a run's training, wherever they are stored now.

    Sets of the same name that were added to two copies of the data later may differ.
    """
    there, here = (provenance.added_set(Path(one.folder), subset) for one in (record.data, data))
    return data.digest == record.data.digest and there in ("", here)


def check_name(run: Path, asked: Asked, data: Data) -> None:
    """Refuse to replace results on another folder of the same base name: the files are named by it.

    Raises:
        InputError: if there are results under this name on other data from another folder.
    """
    path = run / f"{asked.name()}{SUFFIX}"
    if not path.is_file():
        return
    before = json_files.read_as(Evaluated, path)
    same = before.added == provenance.added_set(Path(data.folder), asked.subset)
    if asked.data is not None or before.asked.data is not None:
        same = same and before.data.digest == data.digest
    if before.data.folder != data.folder and not same:
        raise InputError(
            f"{path} has the results on {before.data.folder}, and those on {data.folder} would "
            "have the same name: rename one of the folders, or move the old results away."
        )


def command(
    run: Path, record: Record, experiment: Experiment, asked: Asked, macs: bool = False
) -> list[str]:
    """Arguments of `sut-evaluate`.

    Args:
        run: folder of the run.
        record: of the run.
        experiment: of the run.
        asked: the evaluation.
        macs: count MACs too.

    Raises:
        InputError: if the run has no checkpoint yet, its data have changed, or the results would
            replace those on other data.
    """
    checkpoint = checkpoint_of(run, record, experiment)
    data = data_of(record, asked.data)
    check_name(run, asked, data)
    line = ["--path", str(checkpoint), "--gen-subset", asked.subset, "--data", data.folder]
    if asked.by:
        line += ["--by", asked.by, "--bins", "all"]
    thresholds = asked.thresholds or [one for one in [asked.alpha_threshold] if one is not None]
    if thresholds:
        line += ["--thresholds", *map(_exactly, thresholds)]
    if asked.steps is not None:
        line += ["--model-overrides", f"{{'encoder_layers': {asked.steps}}}"]
    line += _modes(experiment, asked)
    if asked.max_sentences is not None:
        line += ["--max-sentences", str(asked.max_sentences)]
    if macs:
        line.append("--macs")
    if not asked.thresholds and asked.steps is None and asked.max_sentences is None:
        numbers = published(experiment, data, asked.subset, record.model, asked.by, record.without)
        if numbers:
            line += ["--published", *(f"{group}={one:g}" for group, one in numbers.items())]
    name = asked.name()
    return [*line, "--csv", str(run / f"{name}.csv"), "--plot", str(run / f"{name}.png")]


def _modes(experiment: Experiment, asked: Asked) -> list[str]:
    if not asked.search:
        return []
    if asked.thresholds and experiment.evaluation.kind == "translation":
        return ["--modes", "search", "--bleu"]
    if asked.thresholds:
        return ["--modes", "reference", "search"]
    return ["--modes", "search", *experiment.evaluation.search_options]


def keep(run: Path, record: Record, experiment: Experiment, asked: Asked, when: str) -> None:
    """Write the file of an evaluation, begun at `when`, from the rows that `sut-evaluate` wrote."""
    with open(run / f"{asked.name()}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keep_rows(run, asked, data_of(record, asked.data), _measure_of_groups(experiment), rows, when)


def keep_rows(
    run: Path, asked: Asked, data: Data, measure: str, rows: list[dict[str, str]], when: str
) -> None:
    """Write the file of an evaluation, begun at `when`; the arguments are attributes of it."""
    evaluated = Evaluated(
        asked=asked,
        data=data,
        added=provenance.added_set(Path(data.folder), asked.subset) if data.folder else "",
        measure=measure,
        rows=rows,
        code=provenance.describe_code(),
        when=when,
    )
    write(run, asked.name(), evaluated)


def write(run: Path, name: str, evaluated: Evaluated) -> None:
    """Write the file of an evaluation into the folder of its run."""
    json_files.write_json(run / f"{name}{SUFFIX}", dataclasses.asdict(evaluated))


def _check_rows(evaluated: Evaluated, path: Path) -> None:
    """Refuse rows without a group, and results or thresholds that are not numbers.

    Raises:
        InputError: naming the file.
    """
    try:
        evaluated.sentences()
        numbers = [
            number
            for measure in (*SUMMARISED, SECONDS)
            for number in evaluated.values(measure).values()
        ]
        if evaluated.asked.thresholds:
            numbers += [float(row["alpha_threshold"]) for row in evaluated.rows]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("a number is not finite")
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{path} is damaged (its rows: {error}): evaluate the run again."
        ) from error
    if not evaluated.measures():
        raise InputError(f"{path} is damaged (it has no results): evaluate the run again.")


def read_evaluations(run: Path, record: Record) -> list[Evaluated]:
    """The evaluations of a run as it is now: plain ones first, those without search before others.

    Those made before its training continued are of other parameters and are left out. So are those
    that claim to be on the run's data but are on other data.
    """
    found = []
    for path in sorted(run.glob(f"*{SUFFIX}")):
        evaluated = json_files.read_as(Evaluated, path)
        _check_rows(evaluated, path)
        its_data = evaluated.asked.data is not None or evaluated.data.digest == record.data.digest
        if its_data and evaluated.when >= record.trained_until:
            found.append(evaluated)
    return sorted(found, key=lambda one: (not one.asked.plain, one.asked.search))
