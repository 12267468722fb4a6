"""Our CSV files: written atomically, with line feeds between the rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from sut_data.files import written_whole


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write a header and rows; an existing file is replaced atomically.

    Args:
        path: of the file.
        columns: names, in their order.
        rows: cells by column; what a row lacks stays empty.

    Raises:
        ValueError: if a row has a cell of another column.
    """
    with written_whole(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(_LineFeeds(file), columns)
        writer.writeheader()
        writer.writerows(rows)


class _LineFeeds:
    """Ends the rows of a CSV writer with a line feed.

    `csv.writer` has an option for line ends, but some versions of Python quote a carriage return
    in a value only if the line end contains one.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(row.removesuffix("\r\n") + "\n")
