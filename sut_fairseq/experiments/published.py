"""The papers' numbers beside ours."""

from __future__ import annotations

from sut_data.kit.preparation import USUAL
from sut_fairseq.experiments.commands import split_line
from sut_fairseq.experiments.preparing import by_option
from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.schema import Experiment

ALL = "all"  # the group of all sentences
_OWN_TEXT = "parallel_text"  # data that sut-prepare makes from a user's text name no data set


def is_usual(experiment: Experiment, data: Data) -> bool:
    """Whether data are those of an experiment: whole, and prepared as its file says."""
    if (data.dataset or _OWN_TEXT) != (experiment.dataset or _OWN_TEXT) or data.limited:
        return False
    return made_as_usual(experiment, data)


def made_as_usual(experiment: Experiment, data: Data) -> bool:
    """Whether data were made with the options that the experiment's file has for their split."""
    # A stamp without the name of a data set has no options either.
    return not data.dataset or set(data.options) in _options(experiment, data.split)


def _options(experiment: Experiment, split: str) -> list[set[str]]:
    """The options that change the usual sets, as a stamp records them.

    They are those of the split or, if the file has no split of that name, those of each split.
    """
    lines = experiment.prepare
    found = []
    for line in [lines[split]] if split in lines else lines.values():
        options = by_option(split_line(line, f"{experiment.path}: prepare:"))
        own = {name: values for name, values in options.items() if name not in USUAL}
        found.append({" ".join([f"--{name}", *values]) for name, values in own.items()})
    return found or [set()]


def is_about(experiment: Experiment, data: Data) -> bool:
    """Whether data are of an experiment's data set and one of its splits, or name none."""
    if not data.dataset:
        return True
    return data.dataset == experiment.dataset and data.split in ("", *experiment.prepare)


def tables(
    experiment: Experiment, data: Data, subset: str, by: str | None
) -> dict[str, dict[str, float]]:
    """Numbers of all models by group, in per cent.

    Args:
        experiment: whose file holds them.
        data: what was evaluated; only the data of the paper have numbers.
        subset: which set of it.
        by: the column that makes groups.
    """
    if not data.dataset or not is_usual(experiment, data):
        return {}
    found: dict[str, dict[str, float]] = {}
    for table in experiment.published:
        if (table.split, table.subset) != (data.split, subset) or table.by not in (None, by):
            continue
        for model, numbers in table.numbers.items():
            groups = numbers if isinstance(numbers, dict) else {ALL: numbers}
            found[model] = {**found.get(model, {}), **groups}
    return found


def published(
    experiment: Experiment,
    data: Data,
    subset: str,
    model: str,
    by: str | None,
    without: str | None = None,
) -> dict[str, float]:
    """Numbers of one model by group; nothing where the paper has none.

    They are for the whole model: a model `without` one of its parts has none.
    """
    return {} if without else tables(experiment, data, subset, by).get(model, {})
