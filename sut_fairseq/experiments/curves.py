"""The curve of a training: losses and scores by update, from the log of fairseq-train."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sut_fairseq.errors import InputError
from sut_fairseq.experiments.csv_files import write_csv
from sut_fairseq.experiments.records import LOG

CURVE = "curve.csv"
TRAIN = "train"
# Counts that fairseq logs besides the losses and scores of a set.
_COUNTS = frozenset({"bsz", "num_updates", "ppl", "wpb", "wps"})
# Further values that it logs for training: figures of the machine, or settings.
_OF_TRAINING = frozenset(
    {"clip", "gb_free", "gnorm", "loss_scale", "train_wall", "ups", "update", "wall", "epoch"}
)
_LOSSES = frozenset({"loss", "nll_loss"})
_ENTRY = re.compile(r"\| INFO \| ([\w.-]+) \| (.*)$")
_OF_SUBSET = re.compile(r"valid on '([\w.-]+)' subset|\"([\w.-]+)_num_updates\"")
_TRAIN_INNER = "train_inner"  # the training set, every --log-interval updates


class Point(NamedTuple):
    """A logged number of a training at one update.

    Attributes:
        update: number of updates so far.
        subset: the set it is measured on; `train`: the batches since the previous point.
        measure: such as `nll_loss`, in bits per token, or `exact_match`, in per cent.
        value: the number.
    """

    update: int
    subset: str
    measure: str
    value: float


def read_log(lines: Iterable[str], *, all_of_training: bool = False) -> list[Point]:
    """The points in a log, in order; the log is in fairseq's JSON or its plain format.

    It is what fairseq-train prints, or what it or Hydra writes into a file.

    If a resumed training repeated some updates, only their last values count.

    Args:
        lines: of the log.
        all_of_training: for the training set, return not only the losses but everything that the
            criterion logs, including epoch means of what is logged at no other time.
    """
    found: dict[tuple[int, str, str], float] = {}
    epochs: dict[tuple[int, str, str], float] = {}
    for logger, entry in entries(lines):
        if logger == TRAIN and not all_of_training:
            continue
        subset = TRAIN if logger == _TRAIN_INNER else logger
        updates = int(entry["num_updates"])
        for measure, value in entry.items():
            if _is_shown(measure, subset, all_of_training):
                (epochs if logger == TRAIN else found)[updates, subset, measure] = value
    often = {measure for _, subset, measure in found if subset == TRAIN}
    found |= {key: value for key, value in epochs.items() if key[2] not in often}
    return sorted(Point(*key, value) for key, value in found.items())


def entries(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """The logged sets in a log as `read_log` reads it: name, and all numbers by measure.

    One of these is `num_updates`. The training set is called `train_inner` within an epoch and
    `train` at its end.
    """
    for line in lines:
        text = line.rstrip()
        match = _ENTRY.search(text)
        logger, text = (match[1], match[2]) if match else (_logger_of(text), text)
        entry = {}
        for name, value in _pairs(logger, text):
            with suppress(TypeError, ValueError, OverflowError):  # half a line of a killed process
                entry[name] = float(value)
        if math.isfinite(entry.get("num_updates", math.nan)):
            yield logger, entry


def _is_shown(measure: str, subset: str, all_of_training: bool) -> bool:
    """Whether a logged number belongs to a curve."""
    # The best so far follows from the curve.
    if measure in _COUNTS or measure.startswith("best_"):
        return False
    if subset != TRAIN:
        return True
    return measure in _LOSSES or (all_of_training and measure not in _OF_TRAINING)


def _logger_of(text: str) -> str:
    """The logger of a line of fairseq's `--log-file`, which holds only the entry itself."""
    of_subset = _OF_SUBSET.search(text)
    if of_subset:
        return of_subset[1] or of_subset[2]
    return TRAIN if " | " in text else _TRAIN_INNER


def _pairs(logger: str, text: str) -> Iterable[Sequence[Any]]:
    """Pairs of a name and its value; none if the line is not about a set.

    In JSON, all names except those of `train_inner` are prefixed with the name of their set.
    """
    start = "" if logger == _TRAIN_INNER else f"{logger}_"
    brace = text.find("{")  # Hydra puts time and logger before it
    if brace >= 0:
        try:
            entry = json.loads(text[brace:])
        except ValueError:  # a line that a killed process left half written
            return []
        return [
            (name.removeprefix(start), value)
            for name, value in entry.items()
            if name.startswith(start) and f"{start}num_updates" in entry
        ]
    pairs: Iterable[list[str]]
    if logger == _TRAIN_INNER:
        pairs = (field.rsplit(" ", 1)[-1].split("=") for field in text.split(","))
    elif logger == TRAIN or f"valid on '{logger}' subset" in text:
        pairs = (field.split() for field in text.split(" | ") if not field.startswith("epoch "))
    else:
        return []
    return [pair for pair in pairs if len(pair) == 2]


def read_curve(run: Path, *, all_of_training: bool = False) -> list[Point]:
    """The curve of a run, from its log or else from its kept curve file; empty without both.

    For `all_of_training` see `read_log`.

    Raises:
        InputError: if the curve file is damaged.
    """
    log, kept = run / LOG, run / CURVE
    if log.is_file():
        with open(log, encoding="utf-8", errors="replace") as file:
            return read_log(file, all_of_training=all_of_training)
    if not kept.is_file():
        return []
    try:
        with open(kept, newline="", encoding="utf-8") as file:
            return [
                Point(int(row["update"]), row["subset"], row["measure"], float(row["value"]))
                for row in csv.DictReader(file)
            ]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        reason = f"{type(error).__name__}: {error}"  # of a missing column, its name alone
        raise InputError(f"{kept} is damaged ({reason}): remove it and make it again.") from error


def write_curve(run: Path, points: Sequence[Point]) -> None:
    """Write a curve into the folder of a run that is to be kept without its log."""
    write_csv(run / CURVE, Point._fields, (point._asdict() for point in points))
