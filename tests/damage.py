"""Damages checkpoints as disks, copies and kills do."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import pytest


def span(path: Path, record: str) -> range:
    """The byte positions of a record of a checkpoint, after its header.

    Args:
        record: the end of its name, like `data.pkl`.
    """
    with zipfile.ZipFile(path) as archive:
        (info,) = (one for one in archive.infolist() if one.filename.endswith(record))
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = [int.from_bytes(file.read(2), "little") for _ in ("name", "extra field")]
    start = info.header_offset + 30 + sum(lengths)
    return range(start, start + info.file_size)


def largest_record(path: Path) -> range:
    """The byte positions of the largest tensor."""
    with zipfile.ZipFile(path) as archive:
        tensors = [info for info in archive.infolist() if "/data/" in info.filename]
        largest = max(tensors, key=lambda info: info.file_size)
    return span(path, largest.filename)


def flip(path: Path, places: Iterable[int]) -> None:
    """Flip all bits of the bytes at these positions."""
    content = bytearray(path.read_bytes())
    for place in places:
        content[place] ^= 0xFF
    path.write_bytes(content)


def fail_to_open(monkeypatch: pytest.MonkeyPatch, path: Path, number: int) -> None:
    """Make opening this one file fail with a system error, which root would never get."""
    opened = Path.open

    def fail(self: Path, *arguments: Any, **options: Any) -> IO[Any]:
        if self == path:
            raise OSError(number, os.strerror(number), str(path))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", fail)
