"""Finds the checkpoints of a run and their validation values, and selects the best ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sut_fairseq.checkpoints.settings import averaged_in, name_of, setting, updates_of
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.curves import entries

# The names fairseq-train gives, the most informative first: a checkpoint saved under several names
# is listed under the first.
_NAMES = (
    re.compile(r"checkpoint\d+\.pt"),
    re.compile(r"checkpoint_\d+_\d+\.pt"),
    re.compile(r"checkpoint\.best_.+\.pt"),
    re.compile(r"checkpoint_best\.pt"),
    re.compile(r"checkpoint_last\.pt"),
)


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says about itself.

    Attributes:
        path: its file.
        arch: name of the architecture, if it is recorded.
        epoch: the epoch it was saved in or at the end of, from 1; None if not recorded.
        updates: parameter updates so far.
        metric: name of the validation metric that fairseq stored (`--best-checkpoint-metric`).
        value: value of `metric` at this checkpoint, rounded as fairseq logs it; None if there was
            no validation.
        maximize: whether a larger `value` is better.
        subset: the validation subset on which `value` was measured.
        saved: identifies the save; copies of one checkpoint share it.
        save_dir: the folder of its training, if it is recorded.
        averaged: whether it is an average of others.
    """

    path: Path
    arch: str | None
    epoch: int | None
    updates: int
    metric: str
    value: float | None
    maximize: bool
    subset: str
    saved: tuple[Any, ...]
    save_dir: str | None
    averaged: bool


def describe(path: Path, state: Mapping[str, Any]) -> CheckpointInfo:
    """Read the facts of a loaded checkpoint; tensors are not touched.

    The value is `extra_state["val_loss"]`, fairseq's only record of a single validation: the meters
    in `extra_state["metrics"]["valid"]` accumulate over all validations of the run.
    """
    extra = state.get("extra_state") or {}
    iterator = extra.get("train_iterator") or {}
    epoch = iterator.get("epoch")
    if epoch is not None and iterator.get("iterations_in_epoch") == 0:
        # At the end of an epoch fairseq stores where to continue: the start of the next one.
        epoch = max(1, epoch - 1)
    updates = updates_of(state) or 0
    value = extra.get("val_loss")
    # The training time in seconds is a float with all its digits, different for every save.
    time = extra.get("previous_training_time")
    subsets = str(setting(state, "dataset", "valid_subset") or "valid")
    return CheckpointInfo(
        path=path,
        arch=name_of(state, "model"),
        epoch=epoch,
        updates=updates,
        metric=str(setting(state, "checkpoint", "best_checkpoint_metric") or "loss"),
        value=None if value is None else float(value),
        maximize=bool(setting(state, "checkpoint", "maximize_best_checkpoint_metric")),
        subset=subsets.split(",")[0],
        saved=(path.resolve(),) if time is None else (updates, time),
        save_dir=setting(state, "checkpoint", "save_dir"),
        averaged=bool(averaged_in(state)),
    )


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder that carry one of fairseq-train's names, in order of `_NAMES`.

    Raises:
        InputError: `folder` does not exist or has no checkpoint.
    """
    if not folder.is_dir():
        raise InputError(f"There is no folder `{folder}`; give a fairseq-train --save-dir.")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found = [path for name in _NAMES for path in files if name.fullmatch(path.name)]
    if not found:
        raise InputError(
            f"`{folder}` has no checkpoint with a name of fairseq-train's (checkpoint3.pt, "
            f"checkpoint_best.pt, ...); list the files themselves instead of --from."
        )
    return found


def drop_copies(
    infos: Iterable[CheckpointInfo],
) -> tuple[list[CheckpointInfo], dict[Path, Path]]:
    """Separate distinct checkpoints from copies of them under other names.

    Returns:
        the distinct ones in their order, and for each copy the file that it duplicates.
    """
    first: dict[tuple[Any, ...], CheckpointInfo] = {}
    copies: dict[Path, Path] = {}
    for info in infos:
        original = first.setdefault(info.saved, info)
        if original is not info:
            copies[info.path] = original.path
    return list(first.values()), copies


def choose_best(
    infos: Sequence[CheckpointInfo], count: int, maximize: bool, or_fewer: bool
) -> tuple[list[CheckpointInfo], list[Path]]:
    """The `count` best checkpoints by value; of equally good ones, those trained longer.

    Returns:
        the chosen ones, and the files passed over because they have no (finite) value.

    Raises:
        InputError: fewer than `count` have a value, or with `or_fewer` none.
    """
    usable: list[tuple[float, CheckpointInfo]] = []
    unusable: list[Path] = []
    for info in infos:
        if info.value is None or not math.isfinite(info.value):
            unusable.append(info.path)
        else:
            usable.append((-info.value if maximize else info.value, info))
    if not usable:
        raise InputError(
            f"no checkpoint has a finite value of `{infos[0].metric}` to choose by: name a log of "
            "their training with --log."
        )
    if len(usable) < count and not or_fewer:
        raise InputError(
            f"--best {count} asks for more than there are: {len(usable)} of {len(infos)} "
            f"different checkpoints have a value of `{infos[0].metric}`; ask for at most that "
            "many, or give --or-fewer."
        )
    usable.sort(key=lambda pair: (pair[0], -pair[1].updates))
    return [info for _, info in usable[:count]], unusable


def with_metric(
    infos: Sequence[CheckpointInfo], metric: str | None, log: Path | None
) -> list[CheckpointInfo]:
    """Give every checkpoint its value of `metric`.

    Args:
        infos: the checkpoints.
        metric: the metric's name; None means the one that the first checkpoint stores.
        log: training log to take the values from; without it, `metric` must be the stored one.

    Raises:
        InputError: a checkpoint stores another metric, or the log does not have it.
    """
    metric = metric or infos[0].metric
    if log is not None:
        values = read_validation_log(log, metric, infos[0].subset)
        return [replace(info, metric=metric, value=values.get(info.updates)) for info in infos]
    for info in infos:
        if info.metric != metric:
            raise InputError(
                f"`{info.path}` stores its `{info.metric}` only (fairseq-train's "
                f"--best-checkpoint-metric), not `{metric}`; name the training log with --log, or "
                f"choose --metric {info.metric}."
            )
    return list(infos)


def read_validation_log(path: Path, metric: str, subset: str = "valid") -> dict[int, float]:
    """Values of a validation metric in a log of fairseq-train, in its JSON or its plain format.

    Returns:
        number of updates -> value; the last one wins where a resumed run validated again.

    Raises:
        InputError: the log has no such values.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        values = {
            int(entry["num_updates"]): entry[metric]
            for name, entry in entries(lines)
            if name == subset and metric in entry
        }
    if not values:
        raise InputError(
            f"The log `{path}` has no validation lines with `{metric}` of the subset `{subset}`; "
            f"give the output or --log-file of the fairseq-train run and a metric it shows."
        )
    return values
