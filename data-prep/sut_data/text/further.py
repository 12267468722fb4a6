"""Evaluation sets and columns beyond train, valid and test, as command lines name them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from sut_data.errors import InputError
from sut_data.text.pairs import SIDES

Pairs = dict[str, tuple[Path, Path]]


def check_name(option: str, name: str) -> None:
    """Refuse a name that could not be part of a file's name, or that fairseq would cut.

    Raises:
        InputError: saying what a name may hold.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise InputError(f"{option} `{name}`: a name may hold letters, digits, _ and - only.")


def check_set_name(option: str, name: str, taken: Collection[str]) -> None:
    """Refuse a name that a further evaluation set cannot have.

    Args:
        option: the one that gives it.
        name: that of the set.
        taken: names of the existing sets.

    Raises:
        InputError: saying why.
    """
    check_name(option, name)
    # fairseq adds `train1` to the training data, and refuses to train beside a `valid1`.
    if name.startswith(("train", "valid")):
        raise InputError(
            f"{option} {name}: fairseq takes sets whose names begin with train or valid for "
            "parts of those splits; choose another name."
        )
    if name in taken:
        raise InputError(f"{option} {name}: there is a set of that name; choose another one.")


def add_sets(pairs: Pairs, given: Iterable[Sequence[str]], option: str) -> Pairs:
    """Return the sets of pairs with further ones added.

    Args:
        pairs: the existing sets; their files do not matter.
        given: name, source and target file of each further set.
        option: the one that gives them.

    Raises:
        InputError: if a name cannot be used, or is used twice.
    """
    pairs = dict(pairs)
    for name, source, target in given:
        check_set_name(option, name, pairs)
        pairs[name] = (Path(source), Path(target))
    return pairs


def read_columns(given: Iterable[Sequence[str]], pairs: Pairs) -> dict[tuple[str, str], Path]:
    """Return the files of columns by set and name.

    Args:
        given: set, name and file of each.
        pairs: the sets that they may belong to.

    Raises:
        InputError: if a name cannot be used, or is used twice.
    """
    columns: dict[tuple[str, str], Path] = {}
    for split, name, path in given:
        check_name("--column", name)
        if split not in pairs:
            raise InputError(
                f"--column {split}: there is no such set; those given are {', '.join(pairs)}."
            )
        if name in SIDES or (split, name) in columns:
            raise InputError(
                f"--column {split} {name}: that set has a {name} already; choose another name."
            )
        columns[split, name] = Path(path)
    return columns
