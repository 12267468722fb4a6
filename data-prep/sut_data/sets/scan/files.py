"""Files of SCAN: the published splits, the MCD splits, and any file in the same form.

A line is `IN: jump twice OUT: I_JUMP I_JUMP`. The MCD splits (Keysers et al., 2020) are published
as indices: `mcd1.json` lists the lines of `tasks.txt`, counted from 0, of its three parts. Others
have written them out as `tasks_train_mcd1.txt`, `tasks_val_mcd1.txt`, `tasks_test_mcd1.txt`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from pathlib import Path

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders.raw_files import find, look_for
from sut_data.kit.examples import Example, Parts
from sut_data.sets.scan.grammar import interpret
from sut_data.sets.scan.splits import PUBLISHED_SIZES

ALL_TASKS = "tasks.txt"
INDICES = {"train": "trainIdxs", "valid": "devIdxs", "test": "testIdxs"}
# Names of the validation part of an MCD split that is written out; some leave it out.
VALIDATION_NAMES = ("val", "dev", "valid")


def read_pairs(path: Path, *, any_language: bool = False) -> list[Example]:
    """Read every line of a file of pairs.

    Args:
        path: the file, plain or `.gz`.
        any_language: take any words; otherwise the actions must be those of the SCAN command.

    Raises:
        InputError: naming the first line that is not a command with its actions, or if there is
            no line.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        match = re.fullmatch(r"IN: (.+) OUT: (.+)", line.strip())
        if match is None or not (match[1].split() and match[2].split()):
            raise InputError(
                f"{path}, line {number}: expected `IN: <command> OUT: <actions>`, "
                f"but found `{line[:60]}`."
            )
        pair = Example(" ".join(match[1].split()), " ".join(match[2].split()))
        if not any_language:
            _check_actions(pair, f"{path}, line {number}")
        pairs.append(pair)
    if not pairs:
        raise InputError(f"{path} is empty: give at least one line.")
    return pairs


def _check_actions(pair: Example, place: str) -> None:
    """Refuse a pair that is not of the SCAN language."""
    try:
        expected = " ".join(interpret(pair.source))
    except ValueError as error:
        raise InputError(f"{place}: {error}.") from error
    if pair.target != expected:
        raise InputError(
            f"{place}: the actions do not follow from `{pair.source}`; "
            "the file is not the published one."
        )


class Published:
    """The files of a split in the user's folder, and how to read them.

    Args:
        folder: holds them, itself or in subfolders (as a checkout of the SCAN repository does).
        split: its name.

    Attributes:
        files: all files that are read.

    Raises:
        InputError: if a file is absent.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.split = split
        self.files: list[Path]
        self.read: Callable[[], Parts]
        if split in PUBLISHED_SIZES:
            self.files = [find(folder, f"tasks_{side}_{split}.txt") for side in ("train", "test")]
            self.read = lambda: dict(zip(("train", "test"), map(read_pairs, self.files)))
            return
        written_out = look_for(folder, f"tasks_train_{split}.txt")
        if written_out is not None:
            validation = (look_for(folder, f"tasks_{n}_{split}.txt") for n in VALIDATION_NAMES)
            parts = {"train": written_out, "test": find(folder, f"tasks_test_{split}.txt")}
            if found := next(filter(None, validation), None):
                parts["valid"] = found
            self.files = [*parts.values()]
            self.read = lambda: {part: read_pairs(path) for part, path in parts.items()}
        else:
            indices = look_for(folder, f"{split}.json")
            if indices is None:
                raise InputError(
                    f"--raw {folder} has neither {split}.json (with {ALL_TASKS}) nor "
                    f"tasks_train_{split}.txt: give the folder that holds the split."
                )
            tasks = find(folder, ALL_TASKS)
            self.files = [tasks, indices]
            self.read = lambda: select(read_pairs(tasks), read_indices(indices))


def read_indices(path: Path) -> dict[str, list[int]]:
    """Read which lines of `tasks.txt` make up the parts of a split; `valid` only if it is there.

    Raises:
        InputError: if the file is not of that form.
    """
    try:
        content = json.loads("\n".join(read_lines(path)))
        return {
            part: [operator.index(index) for index in content[key]]
            for part, key in INDICES.items()
            if part != "valid" or key in content
        }
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path} does not hold the lists {', '.join(INDICES.values())}: it is not the "
            "published file."
        ) from error


def select(pairs: list[Example], indices: dict[str, list[int]]) -> Parts:
    """Return the parts that the indices select from all pairs.

    Raises:
        InputError: if an index has no line.
    """
    for part, numbers in indices.items():
        wrong = [number for number in numbers if not 0 <= number < len(pairs)]
        if wrong:
            raise InputError(
                f"the split's {part} part wants line {wrong[0]} of {ALL_TASKS}, counted from 0, "
                f"which has {len(pairs):,} lines: the two files do not belong together."
            )
    return {part: [pairs[number] for number in numbers] for part, numbers in indices.items()}


def overlap(parts: Parts) -> str:
    """Return a sentence about what train and test share; empty if they share nothing."""
    train, commands = set(parts["train"]), {pair.source for pair in parts["train"]}
    same = sum(pair in train for pair in parts["test"])
    other = sum(pair.source in commands for pair in parts["test"]) - same
    if not same and not other:
        return ""
    return (
        f"Train and test overlap: {same:,} of the {len(parts['test']):,} test pairs are in the "
        f"training set, and {other:,} more have a command of it with other actions."
    )
