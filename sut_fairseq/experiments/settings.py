"""From an experiment to the options of fairseq-train: a merge of mappings.

All the rules:

1. There are levels, from the general to the specific:

       settings
       model_settings                    rows that name the model
       sizes.SIZE.settings               after both levels of the size that it is `like`, if any
       sizes.SIZE.model_settings
       ablations.PART.settings           with --without PART
       ablations.PART.model_settings
       stages                            settings of a stage, for that stage only

   An option has the value of the most specific level that has it.
2. On one level a file wins over those that it extends.
3. Within one level of one file an option of a model has one value: rows that contradict each other
   are an error.
4. `null` or `false` takes an option away, `true` is an option without a value.
5. Formulas (`formulas`) are worked out at the end. `updates` is max-update of the training at
   hand; in the max-update of a stage it is that of the whole run, which --updates replaces.
6. Options that the user writes after `--` override all of this.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.formulas import evaluate, is_formula
from sut_fairseq.experiments.schema import (
    Ablation,
    Experiment,
    Rows,
    Settings,
    Size,
    Stage,
    Value,
)
from sut_fairseq.experiments.typed import nearest

_OPTION = re.compile(r"[a-z][a-z0-9-]*")
LIMIT = "max-update"
_OF_RUN = {
    "seed": "--seeds gives each run its own",
    "save-dir": "--out names the folder of the run",
    "restore-file": "each call would start from that file, not where the run stopped; "
    "--finetune-from-model starts from its parameters",
    "reset-optimizer": "each call would count updates from 0 again",
    "reset-dataloader": "each call would begin the data again",
    "reset-meters": "each call would forget the best score",
}


@dataclass(frozen=True)
class Choice:
    """What to run of an experiment.

    Attributes:
        model: one of its models.
        size: one of its sizes.
        without: the part that is left out, if any.
        updates: replaces the number of updates in the file.
        own: the user's own options of fairseq-train.
    """

    model: str
    size: str
    without: str | None = None
    updates: int | None = None
    own: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Origin:
    """A value and where it comes from."""

    value: Value
    place: str


def check_choice_of(experiment: Experiment, choice: Choice) -> None:
    """Refuse unknown models, sizes and parts.

    Raises:
        InputError: listing the known ones.
    """
    name = experiment.name
    check_name(f"{name} has the models", choice.model, list(experiment.models))
    check_name(f"{name} has the sizes", choice.size, list(experiment.sizes))
    check_name(
        f"{name} in size {choice.size} has the models",
        choice.model,
        experiment.sizes[choice.size].models or list(experiment.models),
    )
    if choice.without is not None:
        if not experiment.ablations:
            raise InputError(f"{name} has no parts that --without could leave out.")
        check_name("--without takes", choice.without, list(experiment.ablations))
        part = experiment.ablations[choice.without]
        check_name(
            f"--without {choice.without} is for the models",
            choice.model,
            part.models or list(experiment.models),
        )


def check_name(sentence: str, name: str, there: Sequence[str]) -> None:
    """Refuse an unknown name.

    Args:
        sentence: beginning of the message, such as `scan has the models`.
        name: what was given.
        there: all known names.

    Raises:
        InputError: listing the known ones.
    """
    if name not in there:
        raise InputError(f"{sentence} {', '.join(there)}, not `{name}`{nearest(name, there)}.")


def stages(experiment: Experiment, choice: Choice) -> list[Stage | None]:
    """Stages of a run in their order; None is the training that counts, the last one."""
    return [*(experiment.sizes[choice.size].stages or ()), None]


def described_size(experiment: Experiment, name: str) -> str:
    """What the file says about a size, with the lengths of its trainings (of its first model)."""
    size = experiment.sizes[name]
    if not size.lengths_told:
        return size.about.strip()
    choice = Choice((size.models or list(experiment.models))[0], name)
    return size.described(
        {
            stage.name if stage else "": values_of(compose(experiment, choice, stage))
            for stage in stages(experiment, choice)
        }
    )


def values_of(composed: Mapping[str, Origin]) -> Settings:
    """Composed options without their origins."""
    return {name: origin.value for name, origin in composed.items()}


def compose(
    experiment: Experiment, choice: Choice, stage: Stage | None = None, gpus: int = 1
) -> dict[str, Origin]:
    """Options of one training, each with its origin.

    Args:
        experiment: what is run.
        choice: which model, size and so on.
        stage: the stage, a training before the one that counts; None: the one that counts.
        gpus: number of GPUs of the training; 0: none.

    Raises:
        InputError: for an unknown choice, or rows that contradict each other.
    """
    check_choice_of(experiment, choice)
    merged: dict[str, Origin] = {}
    for place, settings in _levels(experiment, choice):
        check_options(settings, place)
        merged |= {name: Origin(value, place) for name, value in settings.items()}
    if choice.updates is not None:
        merged[LIMIT] = Origin(choice.updates, "--updates")
    names = {"updates": math.inf, "devices": max(1, gpus), "single": int(gpus == 1)}
    _work_out_length(merged, names)
    if stage is not None:
        place = f"stage {stage.name}"
        check_options(stage.settings, place)
        merged |= {name: Origin(value, place) for name, value in stage.settings.items()}
        _work_out_length(merged, names)
    for name, origin in merged.items():
        merged[name] = Origin(_worked_out(merged, name, names), origin.place)
    merged |= {name: Origin(value, "your own") for name, value in choice.own}
    # Not `in (None, False)`, which is true of 0, too.
    return {
        name: one
        for name, one in merged.items()
        if one.value is not None and one.value is not False
    }


def _levels(experiment: Experiment, choice: Choice) -> Iterator[tuple[str, Settings]]:
    """Place and settings of each level and file, in the order in which they are merged."""
    files = experiment.documents.items()
    yield from ((f"{file}: settings", one.settings) for file, one in files)
    for file, one in files:
        yield from _rows(experiment, choice, file, "model_settings", one.model_settings)
    for size in _alike(experiment, choice.size):
        yield from _part(experiment, choice, "sizes", size)
    if choice.without is not None:
        yield from _part(experiment, choice, "ablations", choice.without)


def _alike(experiment: Experiment, size: str) -> list[str]:
    """A size after all those that it is `like`, the most general one first."""
    like = experiment.sizes[size].like
    return [*(_alike(experiment, like) if like is not None else ()), size]


def _part(
    experiment: Experiment, choice: Choice, key: str, name: str
) -> Iterator[tuple[str, Settings]]:
    """Both levels of a size or an ablation."""
    found: dict[str, Size | Ablation] = {
        file: getattr(document, key)[name]
        for file, document in experiment.documents.items()
        if name in getattr(document, key)
    }
    for file, part in found.items():
        yield f"{file}: {key}.{name}.settings", part.settings
    for file, part in found.items():
        place = f"{key}.{name}.model_settings"
        yield from _rows(experiment, choice, file, place, part.model_settings)


def _rows(
    experiment: Experiment, choice: Choice, file: str, place: str, rows: Rows
) -> Iterator[tuple[str, Settings]]:
    """The rows of a table that name the model.

    Raises:
        InputError: if two of them give one option different values, or one in the experiment's own
            file names an unknown model.
    """
    merged: dict[str, tuple[Value, str]] = {}
    for row, settings in rows.items():
        patterns = row.split()
        for pattern in patterns:
            # Rows of a shared file may be about models that only other experiments have.
            if file == experiment.own_file and not fnmatch.filter(experiment.models, pattern):
                raise InputError(
                    f"{experiment.path}: {place}: there is no model `{pattern}`"
                    f"{nearest(pattern, experiment.models)}."
                )
        if not any(fnmatch.fnmatchcase(choice.model, pattern) for pattern in patterns):
            continue
        yield f"{file}: {place}.{row}", settings
        for option, value in settings.items():
            before, other = merged.setdefault(option, (value, row))
            if before != value:
                raise InputError(
                    f"{file}: {place}: the rows `{other}` and `{row}` give {choice.model} "
                    f"different values of {option}, {before} and {value}: let only one of them."
                )


def _work_out_length(merged: dict[str, Origin], names: dict[str, float]) -> None:
    """Compute max-update, if there is one, and let the other formulas know it as `updates`.

    Raises:
        InputError: if a formula gives less than one update: fairseq-train takes 0 for no limit.
    """
    if LIMIT not in merged:
        return
    given, limit = merged[LIMIT], _worked_out(merged, LIMIT, names)
    if is_formula(given.value) and isinstance(limit, int) and limit < 1:
        raise InputError(
            f"{given.place}: {LIMIT}: `{given.value}` is {limit}, but a training has at least one "
            "update: give --updates more, or write it with max(1, ...)."
        )
    merged[LIMIT] = Origin(limit, given.place)
    names["updates"] = float(limit) if isinstance(limit, int) else math.inf


def _worked_out(merged: Mapping[str, Origin], option: str, names: Mapping[str, float]) -> Value:
    """The value of an option, computed if it is a formula."""
    value, place = merged[option].value, merged[option].place
    if not isinstance(value, str) or not is_formula(value):
        return value
    try:
        return evaluate(value, names)
    except InputError as error:
        raise InputError(f"{place}: {option}: {error}") from error


def check_options(settings: Settings, place: str) -> None:
    """Refuse names that no option of fairseq-train can have, and those that each run decides.

    Raises:
        InputError: saying how options are spelt, or what decides.
    """
    refuse_options_of_run(settings, place)
    for name in settings:
        if not _OPTION.fullmatch(name):
            spelt = re.sub("[ _]", "-", name.strip("- ").lower())
            like = spelt if _OPTION.fullmatch(spelt) else LIMIT
            raise InputError(f"{place}: options are spelt like `{like}`, not `{name}`.")


def refuse_options_of_run(names: Container[str], place: str) -> None:
    """Refuse options that would be the same for all runs, or would keep a run from going on.

    Raises:
        InputError: saying what decides instead.
    """
    for name, why in _OF_RUN.items():
        if name in names:
            raise InputError(f"{place}: leave --{name} out: {why}.")
