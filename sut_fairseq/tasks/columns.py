"""Columns of a data set: one value for each sentence pair of a split, to report scores by group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from sut_fairseq.errors import InputError

_SIDES = ("src", "tgt")


def column_names(data: str | Path, split: str) -> list[str]:
    """Names of the columns that a prepared folder has for a split."""
    text = Path(data) / "text"
    found = (path.name[len(split) + 1 :] for path in sorted(text.glob(f"{split}.*")))
    return [name for name in found if name not in _SIDES and "." not in name]


def read_column(
    data: str | Path, split: str, name: str, size: int, besides: Sequence[str] = ()
) -> list[str]:
    """The values of a column, in the order of the split's sentence pairs.

    Args:
        data: folder made by data-prep/; the column is its file `text/<split>.<name>`.
        split: `train`, `valid`, `test`, ...
        name: of the column.
        size: number of sentence pairs in the split.
        besides: names that the caller accepts without a column, for the error message.

    Raises:
        InputError: there is no such column, or it does not belong to these pairs.
    """
    path = Path(data) / "text" / f"{split}.{name}"
    if name in _SIDES or not path.is_file():
        known = ", ".join(column_names(data, split)) or "none"
        computed = f"; {' and '.join(besides)} need none" if besides else ""
        raise InputError(
            f"the split `{split}` of `{data}` has no column `{name}`; its columns are: {known}"
            f"{computed}."
        )
    try:
        # Only a line feed ends a value: `splitlines` would split at ten more characters.
        with open(path, encoding="utf-8", newline="\n") as lines:
            values = [line.rstrip("\r\n") for line in lines]
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 text: prepare the data again.") from error
    if len(values) != size:
        raise InputError(
            f"`{path}` has {len(values)} values, but the split has {size} sentence pairs: prepare "
            "the data again."
        )
    return values


def order_of(value: str) -> tuple[int, float, str]:
    """Sort key of a column's values: finite numbers by size, then words alphabetically."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return (0, number, value) if math.isfinite(number) else (1, 0.0, value)
