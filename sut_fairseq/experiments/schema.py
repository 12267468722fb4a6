"""What a file of an experiment may say; `example.yaml` explains every key to users.

A `Document` is one file. An `Experiment` is a file together with those that it extends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Value = str | int | float | bool | None
"""Of an option of fairseq-train: True is an option without a value, None and False remove it."""

Settings = dict[str, Value]
"""Options of fairseq-train without their dashes, and their values; values may be formulas."""

Rows = dict[str, Settings]
"""Settings by model: a key is one or more names or patterns such as `*_act`."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A training before the one that counts, from whose parameters the next one starts."""

    name: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Size:
    """One size of the models and the training."""

    about: str = ""
    models: list[str] | None = None  # those that there are in this size; None: all
    settings: Settings = field(default_factory=dict)
    model_settings: Rows = field(default_factory=dict)
    stages: list[Stage] | None = None


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

    kind: str = "groups"  # or `translation`
    subset: str = "test"
    by: str | None = None
    search_options: list[str] = field(default_factory=list)
    best: int = 5
    beam: int = 8
    lenpen: float = 0.4


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table of a paper: numbers in per cent by model, and by group of the column `by`."""

    table: str
    numbers: dict[str, float | dict[str, float]]
    split: str = ""
    subset: str = "test"
    by: str | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    """One file. What is None or empty there may stand in a file that it extends."""

    extends: list[str] = field(default_factory=list)
    shows: str | None = None
    paper: str | None = None
    expect: str | None = None
    machine: str | None = None
    time: str | None = None
    dataset: str | None = None
    prepare: dict[str, str] | None = None
    task: str | None = None
    models: dict[str, str] | None = None
    settings: Settings = field(default_factory=dict)
    model_settings: Rows = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    ablations: dict[str, Ablation] = field(default_factory=dict)
    metric: str | None = None
    evaluation: Evaluation | None = None
    published: list[Published] | None = None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment, ready to be run.

    Attributes:
        name: of its file, without the ending.
        path: its file.
        documents: the files that its settings come from, by name; each stands after those that it
            extends, so the experiment's own is the last one.
        models: what each model is; the first one is the default.
        prepare: arguments of `sut-prepare` by split; the first one is the default.
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
    task: str
    models: dict[str, str]
    sizes: dict[str, Size]
    ablations: dict[str, Ablation]
    metric: str
    evaluation: Evaluation
    published: list[Published]
