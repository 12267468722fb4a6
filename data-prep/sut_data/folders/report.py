"""Print the counts of a prepared folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sut_data.files import read_lines
from sut_data.tables import table
from sut_data.text.pairs import SIDES
from sut_data.text.treatment import Counts

WORTH_A_WARNING = 0.05  # of the references of a set


def vocabulary_size(dictionary: Path) -> int:
    """Count the entries of a fairseq dictionary, its four special symbols included."""
    return sum(1 for _ in read_lines(dictionary)) + 4


def report(
    out: Path, counts: dict[str, Counts], remedy: str = "", of_train: Collection[str] = ()
) -> None:
    """Print the counts of every split and the vocabulary sizes.

    Args:
        out: the prepared folder.
        counts: of its splits.
        remedy: what would give more references a chance to match.
        of_train: those of the splits that are parts of train, to begin a training with.
    """
    rows = [("split", "pairs", "longest src", "longest tgt", "unknown words")]
    for split, row in counts.items():
        unknown = f"{row.unknown_src} src, {row.unknown_tgt} tgt"
        rows.append((split, str(row.pairs), str(row.longest_src), str(row.longest_tgt), unknown))
    print(table(rows))
    for split, row in counts.items():
        drops = {"blank": row.blank, "too long": row.too_long, "too uneven": row.uneven}
        if any(drops.values()):
            total = sum(drops.values())
            reasons = ", ".join(f"{number} {reason}" for reason, number in drops.items() if number)
            print(f"dropped from {split}: {total} of {row.pairs + total} pairs ({reasons})")
    sizes = [vocabulary_size(out / f"dict.{side}.txt") for side in SIDES]
    print(f"vocabulary: {sizes[0]} src, {sizes[1]} tgt")
    for split, row in counts.items():
        if split in of_train:
            print(f"{split} is a part of train, to begin a training with: take no scores on it")
        elif row.trained:
            print(f"{row.trained:,} of {row.pairs:,} pairs of {split} are in the training text too")
    warned = False
    for split, row in counts.items():
        if row.unreachable >= WORTH_A_WARNING * row.pairs and row.unreachable:
            warned = True
            print(
                f"warning: {row.unreachable:,} of {row.pairs:,} references of {split} have a word "
                "that the training text lacks; no output can match them exactly."
            )
    if warned and remedy:
        print(remedy)
