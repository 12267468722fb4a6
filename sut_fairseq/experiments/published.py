"""The papers' numbers beside ours."""

from __future__ import annotations

from sut_fairseq.experiments.provenance import Data
from sut_fairseq.experiments.schema import Experiment

ALL = "all"  # the group of all sentences
_OWN_TEXT = "parallel_text"  # what sut-prepare makes of a user's text does not name a data set


def is_usual(experiment: Experiment, data: Data) -> bool:
    """Whether data are those that an experiment is about: whole, and prepared as its file says."""
    lines = [f" {line} " for line in experiment.prepare.values()]
    return (
        (data.dataset or _OWN_TEXT) == (experiment.dataset or _OWN_TEXT)
        and not data.limited
        and all(any(f" {option} " in line for line in lines) for option in data.options)
    )


def is_about(experiment: Experiment, data: Data) -> bool:
    """Whether data are of the data set and a split of an experiment, as far as they say that."""
    if not data.dataset:
        return True
    return data.dataset == experiment.dataset and data.split in ("", *experiment.prepare)


def tables(
    experiment: Experiment, data: Data, subset: str, by: str | None
) -> dict[str, dict[str, float]]:
    """Numbers of all models by group, in per cent.

    Args:
        experiment: whose file holds them.
        data: what was evaluated; other data than the published ones have no numbers.
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

    They are of the whole model: one `without` some part of it has none.
    """
    return {} if without else tables(experiment, data, subset, by).get(model, {})
