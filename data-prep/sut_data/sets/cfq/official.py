"""CFQ as its authors publish it: one JSON file of all questions, and one of indices for a split."""

from __future__ import annotations

import gzip
import io
import json
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from sut_data.errors import InputError
from sut_data.folders.archives import files_of, unpacking
from sut_data.folders.raw_files import find, look_for, obtain

ADDRESS = "https://storage.googleapis.com/cfq_dataset/"
ARCHIVE = "cfq1.1.tar.gz"
DATASET = "dataset.json"
SPLIT_FILES = {"random": "random_split"}  # the others are named like their splits
INDICES = ("trainIdxs", "devIdxs", "testIdxs")
FIELDS = ("questionPatternModEntities", "sparqlPatternModEntities")
CHUNK = 1 << 20
LARGEST = 1 << 24  # characters of one entry; a real one has a few thousand

Row = tuple[str, str, str]  # place in the file, question, query


def download() -> Path:
    """Download the archive unless it is there, and return its folder."""
    return obtain(None, "cfq", {ARCHIVE: ADDRESS + ARCHIVE})[ARCHIVE].parent


def find_official(raw: Path, split: str) -> Path:
    """Return the folder that holds dataset.json, or the archive.

    Raises:
        InputError: if there is neither.
    """
    dataset = look_for(raw, DATASET)
    if dataset is not None:
        return dataset.parent
    for archive in sorted(raw.glob("cfq*.tar.gz")):
        return archive
    raise InputError(
        f"--raw {raw} has neither {DATASET} nor {ARCHIVE}, nor is there a folder {split} with "
        "train_encode.txt: give the folder that holds the data set."
    )


def official_files(place: Path, split: str) -> list[Path]:
    """Return the files of a split: the archive, or two in a folder."""
    if not place.is_dir():
        return [place]
    return [find(place, name) for name in (DATASET, split_file(split))]


def split_file(split: str) -> str:
    """Return the name of the file with the indices of a split."""
    return f"splits/{SPLIT_FILES.get(split, split)}.json"


@contextmanager
def open_text(place: Path, name: str) -> Iterator[TextIO]:
    """Open a file of the data set, in a folder (plain or `.gz`) or in the archive.

    Raises:
        InputError: if it is absent or damaged.
    """
    path = find(place, name) if place.is_dir() else place
    try:
        with unpacking(path):
            if place.is_dir():
                with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as plain:
                    yield io.TextIOWrapper(plain, encoding="utf-8")
                return
            found = False
            for _, file in files_of(place, [name]):
                if not found:
                    yield io.TextIOWrapper(file, encoding="utf-8")
                found = True
    except UnicodeDecodeError as error:
        raise InputError(f"{name} in {place} is not UTF-8 text: fetch it again.") from error
    if not found:
        raise InputError(f"{place} holds no {name}: it is not the published archive.")


def read_array(stream: TextIO, what: str) -> Iterator[Any]:
    """Yield the elements of a JSON array one by one: all of dataset.json would take gigabytes.

    Raises:
        InputError: if the text is not one array of objects.
    """
    decoder = json.JSONDecoder()
    buffer, position, opened = "", 0, False
    while True:
        buffer, position = buffer[position:], 0
        chunk = stream.read(CHUNK)
        buffer += chunk
        if not opened:
            buffer = buffer.lstrip()
            if buffer[:1] != "[":
                raise InputError(f"{what} is not a JSON array: it is not the published file.")
            opened, position = True, 1
        while True:
            while buffer[position : position + 1] in (" ", "\n", "\r", "\t", ","):
                position += 1
            if buffer[position : position + 1] == "]":
                return
            try:
                element, position = decoder.raw_decode(buffer, position)
            except (ValueError, RecursionError):
                break  # it continues in the next chunk, or is damaged
            yield element
        if not chunk or len(buffer) - position > LARGEST:
            raise InputError(f"{what} is damaged or cut off: fetch it again.")


def read_indices(place: Path, split: str) -> list[list[int]]:
    """Read which entries of dataset.json make up the three parts of a split.

    Raises:
        InputError: if the file is not of that form.
    """
    name = split_file(split)
    with open_text(place, name) as stream:
        try:
            content = json.loads(stream.read(LARGEST))
            parts = [[operator.index(index) for index in content[key]] for key in INDICES]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{name} in {place} does not hold the lists {', '.join(INDICES)}: "
                "it is not the published file."
            ) from error
    return parts


def read_official(place: Path, split: str) -> list[list[Row]]:
    """Read the rows of a split: training, validation and test.

    Args:
        place: a folder or an archive; see `find_official`.
        split: name of the split.

    Raises:
        InputError: if a file is absent or wrong, or an index has no entry.
    """
    parts = read_indices(place, split)
    wanted = {index for part in parts for index in part}
    rows: dict[int, Row] = {}
    with open_text(place, DATASET) as stream:
        for index, entry in enumerate(read_array(stream, f"{DATASET} in {place}")):
            if index in wanted:
                rows[index] = _read_entry(entry, f"{DATASET} in {place}, entry {index}")
    if wanted - rows.keys():
        raise InputError(
            f"{DATASET} in {place} has no entry {min(wanted - rows.keys())}, which the split needs."
        )
    return [[rows[index] for index in part] for part in parts]


def _read_entry(entry: Any, place: str) -> Row:
    """The question and the query of one entry."""
    texts = [entry.get(field) if isinstance(entry, dict) else None for field in FIELDS]
    question, query = (text if isinstance(text, str) else "" for text in texts)
    if not question.split() or not query.split():
        raise InputError(f"{place} lacks the text of {' or '.join(FIELDS)}.")
    return place, question, query
