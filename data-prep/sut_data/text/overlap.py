"""Evaluation pairs that also occur in the training text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sut_data.text.pairs import SIDES, read_pairs
from sut_data.waiting import waiting


def count_trained(training: Path, text: Path, splits: Iterable[str]) -> dict[str, int]:
    """Count the evaluation pairs that are also training pairs, symbol by symbol.

    The evaluation sets are held in memory, the training text is not.

    Args:
        training: folder with `train.src` and `train.tgt`.
        text: folder with `<split>.src` and `<split>.tgt` of the evaluation sets.
        splits: their names.

    Returns:
        the number for each split; a pair that a split repeats counts each time.
    """
    with waiting("comparing with the training text"):
        pairs = {split: [*read_pairs(*_files(text, split))] for split in splits}
        wanted = {pair for own in pairs.values() for pair in own}
        found = {pair for pair in read_pairs(*_files(training, "train")) if pair in wanted}
    return {split: sum(pair in found for pair in own) for split, own in pairs.items()}


def _files(folder: Path, split: str) -> tuple[Path, Path]:
    source, target = (folder / f"{split}.{side}" for side in SIDES)
    return source, target
