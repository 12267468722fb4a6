"""Builds the document that a page shows: all its contents are computed here, with progress bars."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sut_data.waiting import waiting
from sut_fairseq.analysis.expert_use import routers
from sut_fairseq.analysis.page.document import FORMAT, model_record, sentences_record
from sut_fairseq.analysis.page.split import depth_record, expert_record
from sut_fairseq.analysis.page.training import training_record
from sut_fairseq.analysis.sentences import Reader, Sentence
from sut_fairseq.checkpoints.reading import load_checkpoint
from sut_fairseq.cli._selection import describe
from sut_fairseq.errors import InputError
from sut_fairseq.experiments import curves
from sut_fairseq.experiments.records import LOG


def make_document(
    arguments: argparse.Namespace,
    reader: Reader,
    checkpoint: Path,
    sentences: Mapping[str, Sentence],
    thresholds: Sequence[float | None],
    numbers: Sequence[int],
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return everything that the page shows.

    Args:
        arguments, reader, checkpoint: of the command, the model, and its file.
        sentences: by their names on the page.
        thresholds: of the slider.
        numbers: sentences of the split to average over; empty: no split.
        live: what a page that sends requests to the server has to know; None: a page that does not.
    """
    info = describe(checkpoint, load_checkpoint(checkpoint, lazy=True))
    data = str(reader.task.cfg.data)
    document: dict[str, Any] = {
        "format": FORMAT,
        "model": model_record(
            reader,
            name=info.arch or type(reader.model).__name__,
            checkpoint=checkpoint.name,
            data=Path(data).name,
            updates=info.updates,
        ),
        "thresholds": thresholds,
        "chosen": thresholds.index(reader.alpha_threshold),
        "live": live,
        "sentences": [],
    }
    total = len(sentences) * len(thresholds)
    with tqdm(total=total, desc="asking", unit="answer", disable=None, leave=False) as bar:
        found = sentences_record(
            reader,
            list(sentences.values()),
            thresholds,
            target=arguments.target,
            progress=bar.update,
        )
    document["sentences"] = [  # those that were typed have no names besides their text
        {"name": "" if name == sentence.text else name, **record}
        for (name, sentence), record in zip(sentences.items(), found)
    ]
    document |= _split(arguments, reader, thresholds, numbers)
    with waiting("reading the log"):
        document["training"] = _training(arguments.log, checkpoint)
    document["notes"] = _notes(arguments, document)
    return document


def _split(
    arguments: argparse.Namespace,
    reader: Reader,
    thresholds: Sequence[float | None],
    numbers: Sequence[int],
) -> dict[str, Any]:
    """The averages over a split; None where there is nothing to average."""
    result: dict[str, Any] = {"split": None, "depth": None, "experts": None}
    if not numbers:
        return result
    model, task, split = reader.model, reader.task, arguments.gen_subset
    result["split"] = {"name": split}
    halts = any(shape.halts for shape in reader.shapes.values())
    mixes = any(routers(model).values())
    total = len(numbers) * (halts * len(thresholds) + mixes)
    own = reader.alpha_threshold
    with tqdm(
        total=total, desc=f"running {split}", unit="sentence", disable=None, leave=False
    ) as bar:
        options: dict[str, Any] = {"max_tokens": arguments.max_tokens, "progress": bar.update}
        if mixes:
            result["experts"] = expert_record(model, task, split, numbers, **options)
        if halts:
            by = arguments.steps_by or "length"
            result["depth"] = depth_record(model, task, split, numbers, by, thresholds, **options)
    if own is not None:
        reader.alpha_threshold = own
    return result


def _training(log: Path | None, checkpoint: Path) -> dict[str, Any] | None:
    """The curves in `log` or, without it, in our usual log of the training; None without curves."""
    if log is not None:
        with open(log, encoding="utf-8", errors="replace") as lines:
            points = curves.read_log(lines, all_of_training=True)
        if not points:
            raise InputError(f"`{log}` has no lines of fairseq-train's about updates: check --log.")
        return training_record(log.name, points)
    for folder in (checkpoint.parent, checkpoint.absolute().parent.parent):
        if points := curves.read_curve(folder, all_of_training=True):
            return training_record(LOG, points)
    return None


def _notes(arguments: argparse.Namespace, document: Mapping[str, Any]) -> list[str]:
    """Notes at the foot of the page on how its numbers were obtained."""
    search = "greedy search" if arguments.beam == 1 else f"a beam of {arguments.beam}"
    if document["model"]["labels"]:
        notes = []
    elif arguments.target is not None:
        notes = ["The decoder reads the target that was given."]
    else:
        notes = [f"Answers are found by {search}."]
    notes.append(
        "Steps, maps and MACs (multiply-accumulates, attention products included) are those of the "
        "model run once on the sentence and this answer."
    )
    parts = {"split": "averages over a split", "training": "curves of the training"}
    missing = [what for key, what in parts.items() if document[key] is None]
    if missing:
        notes.append(f"Not found, and so not shown: {' and '.join(missing)}.")
    return notes
