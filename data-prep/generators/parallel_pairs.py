"""Parallel text: what is refused, what is counted, and the clean copy that is binarised."""

from __future__ import annotations

import hashlib
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from text_files import InputError, read_lines

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


class Counts(NamedTuple):
    """What a split holds; lengths are in words, without the end-of-sentence symbol."""

    pairs: int
    longest_src: int
    longest_tgt: int
    unknown_src: int  # words of the split that the training text does not have
    unknown_tgt: int


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def check_files(inputs: Inputs) -> None:
    """Refuse inputs that are absent, not files, or empty.

    Raises:
        InputError: naming the first such file and where it was given.
    """
    for name, path in inputs.files().items():
        split, _, part = name.partition(".")
        option = f"--{split}" if split in SPLITS else f"--also {split}"
        if part not in SIDES:
            option = f"--column {split} {part}"
        if not path.exists():
            raise InputError(f"{option} names {path}, which does not exist: check the path.")
        if not path.is_file():
            raise InputError(f"{option} names {path}, which is not a file: give a text file.")
        if path.stat().st_size == 0:
            raise InputError(f"{option} names {path}, which is empty: give at least one line.")


def copy_pairs(src: Path, tgt: Path, prefix: Path, known: tuple[set[str], set[str]]) -> Counts:
    """Copy one split to `<prefix>.src` and `<prefix>.tgt`, one space between words, and count it.

    Args:
        src, tgt: the two sides, plain or gzipped.
        prefix: path of the copies without the suffix.
        known: the words of the training text on each side, against which unknown ones are counted.

    Raises:
        InputError: if the sides differ in length, a line is blank, or there is no line at all.
    """
    pairs = 0
    longest, unknown = [0, 0], [0, 0]
    with open(f"{prefix}.src", "w", encoding="utf-8") as out_src, open(
        f"{prefix}.tgt", "w", encoding="utf-8"
    ) as out_tgt:
        for lines in zip_longest(read_lines(src), read_lines(tgt)):
            if None in lines:
                counts = [sum(1 for _ in read_lines(path)) for path in (src, tgt)]
                raise InputError(
                    f"{src} has {counts[0]} lines but {tgt} has {counts[1]}: line N of one must be "
                    "the translation of line N of the other, so the counts must be equal."
                )
            pairs += 1
            for side, (line, out) in enumerate(zip(lines, (out_src, out_tgt))):
                words = line.split()
                if not words:
                    raise InputError(
                        f"{(src, tgt)[side]}, line {pairs} is blank: every sentence needs at least "
                        "one word, so remove that line from both files."
                    )
                out.write(" ".join(words) + "\n")
                longest[side] = max(longest[side], len(words))
                unknown[side] += sum(word not in known[side] for word in words)
    if pairs == 0:
        raise InputError(f"{src} and {tgt} hold no sentence: give at least one.")
    return Counts(pairs, *longest, *unknown)


def copy_column(path: Path, copy: Path, pairs: int) -> None:
    """Copy a column to `copy`, one value a line, without spaces around it.

    Args:
        path: the column, plain or gzipped.
        copy: file to write.
        pairs: number of pairs of its split.

    Raises:
        InputError: if there are more or fewer values than pairs, or one is blank.
    """
    number = 0
    with open(copy, "w", encoding="utf-8") as out:
        for number, line in enumerate(read_lines(path), start=1):
            value = " ".join(line.split())
            if not value:
                raise InputError(f"{path}, line {number} is blank: give every pair a value.")
            out.write(value + "\n")
    if number != pairs:
        raise InputError(
            f"{path} has {number} values but its split has {pairs} pairs: give line N the value of "
            "pair N, so the counts must be equal."
        )


def copy_text(inputs: Inputs, joined: bool, folder: Path) -> dict[str, Counts]:
    """Check and copy all splits and columns into `folder`; refuses what the functions above do."""
    folder.mkdir()
    known: tuple[set[str], set[str]] = (set(), set())
    for path, words in zip(inputs.pairs["train"], known):
        for line in read_lines(path):
            words.update(line.split())
    if joined:
        known = (known[0] | known[1],) * 2
    counts = {
        split: copy_pairs(*pair, folder / split, known) for split, pair in inputs.pairs.items()
    }
    for (split, name), path in inputs.columns.items():
        copy_column(path, folder / f"{split}.{name}", counts[split].pairs)
    return counts
