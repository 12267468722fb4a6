"""The files of a parallel corpus, and the checks that refuse unusable ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from sut_data.errors import InputError
from sut_data.files import read_lines, write_lines
from sut_data.waiting import waiting

SPLITS = ("train", "valid", "test")
SIDES = ("src", "tgt")


class Inputs(NamedTuple):
    """The files a folder is made from.

    `pairs` has the source and target file of each split, train, valid and test first; `columns` the
    file of each further column by split and name.
    """

    pairs: dict[str, tuple[Path, Path]]
    columns: dict[tuple[str, str], Path]

    def files(self) -> dict[str, Path]:
        """Return every file under the name it gets in the prepared folder, such as `test.src`."""
        sides = {
            f"{split}.{side}": path
            for split, pair in self.pairs.items()
            for side, path in zip(SIDES, pair)
        }
        return {
            **sides,
            **{f"{split}.{name}": path for (split, name), path in self.columns.items()},
        }


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_files(inputs: Inputs, further: str = "--also") -> None:
    """Refuse inputs that are absent, not files, or empty.

    Args:
        inputs: the files.
        further: how further evaluation sets are given.

    Raises:
        InputError: naming the first such file and where it was given.
    """
    for name, path in inputs.files().items():
        split, _, part = name.partition(".")
        option = f"--{split}" if split in SPLITS else f"{further} {split}"
        if part not in SIDES:
            option = f"--column {split} {part}"
        if not path.exists():
            raise InputError(f"{option} names {path}, which does not exist: check the path.")
        if not path.is_file():
            raise InputError(f"{option} names {path}, which is not a file: give a text file.")
        if path.stat().st_size == 0:
            raise InputError(f"{option} names {path}, which is empty: give at least one line.")


def read_pairs(src: Path, tgt: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of two files in pairs.

    Raises:
        InputError: if one has more lines than the other, or cannot be read.
    """
    for source, target in zip_longest(read_lines(src), read_lines(tgt)):
        if source is None or target is None:
            counts = [sum(1 for _ in read_lines(path)) for path in (src, tgt)]
            raise InputError(
                f"{src} has {counts[0]} lines but {tgt} has {counts[1]}: line N of one must "
                "belong to line N of the other, so the counts must be equal."
            )
        yield source, target


def check_text(inputs: Inputs, blank_in_train: bool) -> dict[str, int]:
    """Read everything once, so that errors are reported before any long work.

    Args:
        inputs: the files.
        blank_in_train: whether a line of the training data may be blank; its pair is dropped later.

    Returns:
        the number of lines of each split.

    Raises:
        InputError: if two sides differ in length, a line is blank, there is no line at all, or a
            column does not have one value for each pair.
    """
    lines = {}
    for split, (src, tgt) in inputs.pairs.items():
        number = 0
        for number, pair in enumerate(read_pairs(src, tgt), start=1):
            blank = [path for path, line in zip((src, tgt), pair) if not line.strip()]
            if blank and not (blank_in_train and split == "train"):
                raise InputError(
                    f"{blank[0]}, line {number} is blank: every sentence needs at least one word, "
                    "so remove that line from both files."
                )
        if number == 0:
            raise InputError(f"{src} and {tgt} hold no sentence: give at least one.")
        lines[split] = number
    for (split, _), path in inputs.columns.items():
        number = 0
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                raise InputError(f"{path}, line {number} is blank: give every pair a value.")
        if number != lines[split]:
            raise InputError(
                f"{path} has {number} values but its split has {lines[split]} pairs: give line N "
                "the value of pair N, so the counts must be equal."
            )
    return lines


def evenly_spaced(lines: Iterable[str], total: int, limit: int) -> Iterator[str]:
    """Yield `limit` of `total` lines, the last one included; all if there are no more."""
    keep = min(limit, total)
    for number, line in enumerate(lines):
        if number * keep // total != (number + 1) * keep // total:
            yield line


def thin(inputs: Inputs, blank_in_train: bool, limit: int, folder: Path) -> Inputs:
    """Copy `limit` evenly spaced pairs of each set, with their columns, to a folder.

    Args, Raises:
        as `check_text`, which checks all pairs first.
    """
    copies = {}
    with waiting("reading the text"):
        lines = check_text(inputs, blank_in_train)
        for name, path in inputs.files().items():
            copies[name] = folder / name
            total = lines[name.partition(".")[0]]
            write_lines(copies[name], evenly_spaced(read_lines(path), total, limit))
    pairs = {split: (copies[f"{split}.src"], copies[f"{split}.tgt"]) for split in inputs.pairs}
    return Inputs(pairs, {key: copies[".".join(key)] for key in inputs.columns})


def copy_columns(inputs: Inputs, folder: Path, dropped: set[int]) -> None:
    """Copy the columns to `<folder>/<split>.<name>`, without spaces around the values.

    Args:
        inputs: the files, checked.
        folder: where to copy them.
        dropped: numbers of the training pairs that were dropped, counted from 0.
    """
    for (split, name), path in inputs.columns.items():
        with open(folder / f"{split}.{name}", "w", encoding="utf-8") as copy:
            for number, line in enumerate(read_lines(path)):
                if split != "train" or number not in dropped:
                    copy.write(" ".join(line.split()) + "\n")
