"""The schema of an experiment's file; `example.yaml` explains every key to users.

A `Document` is one file. An `Experiment` is a file together with those that it extends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Value = str | int | float | bool | None
"""Of an option of fairseq-train: True is an option without a value, None and False remove it."""

Settings = dict[str, Value]
"""Options of fairseq-train without their dashes, and their values; values may be formulas."""


def whole(value: Value) -> int | None:
    """A value as a whole number; None for anything else, which fairseq-train refuses."""
    return int(str(value)) if str(value).isdecimal() else None


_OF_MACHINE = re.compile(r"distributed-.*|num-workers|cpu|cuda-graphs")


def is_of_machine(option: str) -> bool:
    """Whether an option belongs to the machine: a run may continue with another value of it."""
    return _OF_MACHINE.fullmatch(option) is not None


def without_machine(settings: Settings) -> Settings:
    """Options of the experiment: those that belong to the machine are left out."""
    return {name: value for name, value in settings.items() if not is_of_machine(name)}


MEASURES = {
    "percent": "in per cent",
    "before_eos": "right before `<eos>`, in per cent",
    "attention_loss": "attention loss, in squared source words",
    "absolute_error": "mean absolute error",
    "macs": "MACs per pair, attention products included",
}
"""Columns of evaluations that tables are made of, and what they say."""

SUMMARISED = MEASURES | {
    "encoder_depth": "depth of the encoder, in steps per token",
    "decoder_depth": "depth of the decoder, in steps per token",
    "skipped": "share of steps that halting skips, of loops that halt",
}
"""Columns that a summary can show: what an answer costs is not in every table."""

DECIMALS = {"absolute_error": 3, "macs": 0}
"""How many of them tables show; 2 of all other measures."""


_LESS_IS_BETTER = re.compile(r".*loss|absolute_error|macs|ppl|wer")


def less_is_better(measure: str) -> bool:
    """Whether a measure, or a metric of fairseq's validation, is a loss rather than a score."""
    return _LESS_IS_BETTER.fullmatch(measure) is not None


def shown(measure: str, number: float) -> str:
    """A result as tables show it."""
    return f"{number:.{DECIMALS.get(measure, 2)}f}"


Rows = dict[str, Settings]
"""Settings by model: a key is one or more names or patterns such as `*_act`."""


UPDATES = "updates"
"""What `about` of a size calls the length of the training that counts, in braces."""

_IN_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A training before the one that counts, from whose parameters the next one starts."""

    name: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Size:
    """One size of the models and the training.

    Attributes:
        about: for readers. `{updates}` stands for the number of updates of the training that
            counts, the name of a stage in braces for that of the stage.
        budget: the model or the data in a few words, such as `states of 128`; the first table of
            the results adds the length of the training.
        like: another size, whose models, stages and settings this one has unless it gives its own.
    """

    about: str = ""
    budget: str = ""
    like: str | None = None
    models: list[str] | None = None  # the models of this size; None: all
    settings: Settings = field(default_factory=dict)
    model_settings: Rows = field(default_factory=dict)
    stages: list[Stage] | None = None

    @property
    def lengths_told(self) -> list[str]:
        """What `about` has in braces."""
        return _IN_BRACES.findall(self.about)

    def described(self, trainings: Mapping[str, Settings]) -> str:
        """`about` with the lengths of these trainings.

        Args:
            trainings: options of fairseq-train by stage; an empty name is the training that
                counts.
        """

        def length(found: re.Match[str]) -> str:
            name = "" if found[1] == UPDATES else found[1]
            number = whole(trainings.get(name, {}).get("max-update"))
            return found[0] if number is None else f"{number:,}"

        return _IN_BRACES.sub(length, self.about.strip())


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """A part that can be left out."""

    about: str = ""
    models: list[str] | None = None
    settings: Settings = field(default_factory=dict)
    model_settings: Rows = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How a run is evaluated."""

    kind: str = "groups"  # or `translation`, `regression`
    subset: str = "test"
    checkpoint: str = "best"  # or `last`, but not for `translation`, which averages the best ones
    by: str | None = None
    search_options: list[str] = field(default_factory=list)
    best: int = 5
    beam: int = 8
    lenpen: float = 0.4


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table of a paper: numbers by model, and by group of the column `by`.

    The numbers are those of an evaluation's first measure: per cent, or errors.
    """

    table: str
    numbers: dict[str, float | dict[str, float]]
    split: str = ""
    subset: str = "test"
    by: str | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A table or figure of a paper that puts several models, or several data, side by side.

    Attributes:
        title: what the paper calls it.
        measure: column of the evaluations that it shows, a key of `SUMMARISED`.
        splits: data that it shows.
        models: which ones; all if left out.
        size: of the runs; the first of the experiment if left out.
        mean_of_splits: one row for each model, the mean over the data.
        by_split: one row for each model, and instead of groups a column for each of the data, with
            the paper's number from `published`.
        of_split: the group that such a column shows, by split; the whole set if none is given.
        numbers: the paper's, by row (a model, or `model (split)` for one of several splits) and
            group.
    """

    title: str
    measure: str = "percent"
    splits: list[str]
    models: list[str] | None = None
    size: str | None = None
    mean_of_splits: bool = False
    by_split: bool = False
    of_split: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name for files, such as `table-3`."""
        return "-".join(re.findall(r"[\w.]+", self.title.lower()))

    def row(self, model: str, split: str) -> str:
        """The key in `numbers` of a model on a split."""
        alone = self.mean_of_splits or len(self.splits) == 1
        return model if alone else f"{model} ({split})"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of the first table of the results: whether a number of the paper is reached.

    Attributes:
        shows: the row's label, such as `turn left, UT`.
        model, splits, group: which result, the mean over the splits if there are several; no split:
            any; the group `all` is the whole set.
        measure: which number, a key of `MEASURES`.
        paper: the paper's number; None where no paper has one.
        bar: what ours has to reach or, where less is better, must not exceed.
        steps: of the encoder, in the paper's evaluation; None: as many as in its training. Runs of
            other sizes count with the steps of their training.
        budget: size and length of the paper's training, in words.
    """

    shows: str
    model: str
    splits: list[str] = field(default_factory=list)
    group: str = "all"
    measure: str = "percent"
    paper: float | None = None
    bar: float
    steps: int | None = None
    budget: str = ""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One file. What is None or empty in it may be given by a file that it extends."""

    extends: list[str] = field(default_factory=list)
    shows: str | None = None
    paper: str | None = None
    expect: str | None = None
    machine: str | None = None
    time: str | None = None
    dataset: str | None = None
    prepare: dict[str, str] | None = None
    generate: dict[str, Settings] | None = None
    task: str | None = None
    models: dict[str, str] | None = None
    settings: Settings = field(default_factory=dict)
    model_settings: Rows = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    ablations: dict[str, Ablation] = field(default_factory=dict)
    metric: str | None = None
    evaluation: Evaluation | None = None
    compared: list[str] | None = None
    published: list[Published] | None = None
    summaries: list[Summary] | None = None
    claims: list[Claim] | None = None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment, ready to be run.

    Attributes:
        name: of its file, without the ending.
        path: its file.
        documents: the files that its settings come from, by name, or by path where another file
            has the same name; each comes after those that it extends, the experiment's own last.
        models: what each model is; the first one is the default.
        prepare: arguments of `sut-prepare` by split; the first one is the default.
        generate: by split, options of a task that draws its data itself; it has no folder then.
        compared: models whose results by group its page shows; all if it is empty. Its own file
            alone can give it: one that extends it may have other models.
        sizes, ablations: by name, as the last file has them that names them; without settings.

    The other attributes are those of the last file that has them.
    """

    name: str
    path: Path
    documents: Mapping[str, Document]
    shows: str
    paper: str
    expect: str
    machine: str
    time: str
    dataset: str
    prepare: dict[str, str]
    generate: dict[str, Settings]
    task: str
    models: dict[str, str]
    sizes: dict[str, Size]
    ablations: dict[str, Ablation]
    metric: str
    evaluation: Evaluation
    compared: list[str]
    published: list[Published]
    summaries: list[Summary]
    claims: list[Claim]

    @property
    def citation(self) -> str:
        """Authors and year of the paper, without its tables."""
        return self.paper.partition(",")[0]

    @property
    def own_file(self) -> str:
        """The key of its own file in `documents`."""
        return list(self.documents)[-1]

    @property
    def splits(self) -> list[str]:
        """The names of the splits, prepared or drawn; the first one is the default."""
        return list(self.prepare or self.generate)
