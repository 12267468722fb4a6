"""Checks of an experiment's file as a whole: unknown or duplicate names, numbers out of range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sut_fairseq.errors import InputError, check, check_choice
from sut_fairseq.experiments.preparing import DEFAULT
from sut_fairseq.experiments.schema import (
    MEASURES,
    SUMMARISED,
    Ablation,
    Evaluation,
    Experiment,
    Size,
    Stage,
    Summary,
)
from sut_fairseq.experiments.typed import Place, nearest

KINDS = ("groups", "translation", "regression")
CHECKPOINTS = ("best", "last")
# Of every experiment, beside those of its summaries.
_PICTURES = re.compile("curves|trade-off|results(-by-.*)?")
_MOST_LENPEN = 10  # as in `inference.results.Search`
_STAGE = re.compile(r"(?!checkpoints$)[A-Za-z0-9][\w-]*")  # a folder beside `checkpoints`


def check_models(
    models: Iterable[str], parts: Mapping[str, Size] | Mapping[str, Ablation], place: Place
) -> None:
    """Refuse sizes or ablations of models that there are not.

    Raises:
        InputError: naming the model.
    """
    for name, part in parts.items():
        for model in part.models or ():
            if model not in models:
                raise InputError(
                    f"{place / name}: there is no model `{model}`{nearest(model, models)}."
                )


def check_stages(place: Place, stages: Sequence[Stage]) -> None:
    """Refuse names that are not unique, or that no folder of a stage can have.

    Raises:
        InputError: naming the stage.
    """
    names = [stage.name for stage in stages]
    for name in names:
        if not _STAGE.fullmatch(name) or names.count(name) > 1:
            raise InputError(
                f"{place}: a stage cannot be called `{name}`: each needs a name of its own, of "
                "letters, digits, `-` and `_`, and not `checkpoints`."
            )


def check_experiment(experiment: Experiment, place: Place) -> None:
    """Refuse unknown names, and titles of summaries that are not unique.

    Raises:
        InputError: listing the known ones.
    """
    if experiment.prepare and experiment.generate:
        raise InputError(f"{place} has both `prepare` and `generate`: its data are either.")
    models = experiment.models
    _check_evaluation(experiment.evaluation, place / "evaluation", bool(experiment.generate))
    for model in experiment.compared:
        check_choice(f"{place / 'compared'}", model, models)
    for table in experiment.published:
        for model in table.numbers:
            check_choice(f"{place / 'published'}: {table.table}: model", model, models)
        if table.split:
            _check_split(f"{place / 'published'}: {table.table}", table.split, experiment)
    titles = [summary.name for summary in experiment.summaries]
    for summary in experiment.summaries:
        at = f"{place / 'summaries'}: {summary.title}"
        apart = titles.count(summary.name) == 1 and not _PICTURES.fullmatch(summary.name)
        check(apart, f"{at}: title", "unlike those of other pictures and tables", summary.title)
        _check_summary(summary, at, experiment)
    for claim in experiment.claims:
        at = f"{place / 'claims'}: {claim.shows}"
        check_choice(f"{at}: measure", claim.measure, MEASURES)
        check_choice(f"{at}: model", claim.model, models)
        steps = claim.steps
        check(steps is None or steps >= 1, f"{at}: steps", "at least 1", steps)
        for one in claim.splits:
            _check_split(at, one, experiment)


def _check_summary(summary: Summary, at: str, experiment: Experiment) -> None:
    """Refuse unknown names, and keys that mean nothing beside each other."""
    models = experiment.models
    check(bool(summary.splits), f"{at}: splits", "at least one", "none")
    check_choice(f"{at}: measure", summary.measure, SUMMARISED)
    for one in summary.models or ():
        check_choice(f"{at}: model", one, models)
    for one in summary.splits:
        check_choice(f"{at}: split", one, _splits(at, experiment))
    for one in summary.of_split:
        check_choice(f"{at}: of_split", one, summary.splits)
    if summary.by_split:
        for key in ("mean_of_splits", "numbers"):
            given = bool(getattr(summary, key))
            check(not given, f"{at}: {key}", "left out with `by_split: true`", "given")
    else:
        given = bool(summary.of_split)
        check(not given, f"{at}: of_split", "left out without `by_split: true`", "given")
    rows = [summary.row(model, split) for model in models for split in summary.splits]
    for row in summary.numbers:
        check_choice(f"{at}: numbers", row, dict.fromkeys(rows))
    if summary.size is not None:
        check_choice(f"{at}: size", summary.size, experiment.sizes)


def _check_evaluation(evaluation: Evaluation, place: Place, draws: bool) -> None:
    """Refuse an evaluation that could only fail, once all is trained.

    Args:
        evaluation: of the experiment.
        place: in its file.
        draws: whether the task draws its data.

    Raises:
        InputError: naming the key.
    """
    check_choice(f"{place / 'kind'}", evaluation.kind, KINDS)
    check_choice(f"{place / 'checkpoint'}", evaluation.checkpoint, CHECKPOINTS)
    if evaluation.kind == "translation" and evaluation.checkpoint != "best":
        raise InputError(
            f"{place / 'checkpoint'} must be best for `kind` translation, which averages the "
            f"best checkpoints, but is {evaluation.checkpoint} instead: leave it out."
        )
    if draws and evaluation.kind != "regression":
        raise InputError(
            f"{place / 'kind'} must be regression for data that `generate` draws, but is "
            f"{evaluation.kind} instead."
        )
    if not draws and evaluation.kind == "regression":
        raise InputError(
            f"{place / 'kind'} must not be regression without `generate`: only drawn data have "
            "numbers as targets."
        )
    for name in ("best", "beam"):
        number = getattr(evaluation, name)
        check(number >= 1, f"{place / name}", "at least 1", number)
    penalty, most = evaluation.lenpen, _MOST_LENPEN
    check(abs(penalty) <= most, f"{place / 'lenpen'}", f"between -{most} and {most}", penalty)


def _check_split(at: str, split: str, experiment: Experiment) -> None:
    """Refuse the name of data that the experiment does not have.

    Raises:
        InputError: listing the known ones.
    """
    # Data of the split `default` have the name that `sut-prepare` gives them, like `full` and
    # `sample` of WMT'14, which no file lists.
    if DEFAULT not in experiment.splits:
        check_choice(f"{at}: split", split, _splits(at, experiment))


def _splits(at: str, experiment: Experiment) -> list[str]:
    """The names of the data, of which something is about to name one.

    Raises:
        InputError: if there are none.
    """
    if not experiment.splits:
        raise InputError(
            f"{at}: the file does not say how to make any data: list its splits under the key "
            "`prepare`."
        )
    return experiment.splits
