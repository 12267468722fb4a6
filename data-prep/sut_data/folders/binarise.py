"""Binarise text with fairseq-preprocess, and check that nothing was lost on the way."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sut_data.errors import InputError
from sut_data.text.pairs import SIDES
from sut_data.text.treatment import Counts
from sut_data.waiting import waiting

LOG = "fairseq-preprocess.log"
# Bytes per number, by fairseq's code of the type.
_WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8}
# An index begins with magic bytes, a version, the code of the number type and the number of rows;
# the length and the place of each row follow.
_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQ")
_BYTES_PER_ROW = 4 + 8


def binarise(
    folder: Path,
    splits: Iterable[str],
    joined: bool,
    workers: int,
    prepared: Path | None = None,
) -> None:
    """Run fairseq-preprocess on `<folder>/text`; results and log go to `folder`.

    Args:
        folder: where `text/<split>.src` and `.tgt` are.
        splits: train, valid, test and the names of further evaluation sets.
        joined: one dictionary for both sides; either way it holds the words of train alone.
        workers: number of processes.
        prepared: a folder whose dictionaries are used, if train is not among the splits.

    Raises:
        InputError: if it fails; the end of its log goes to standard error first.
    """
    # fairseq numbers its test sets (test, test1, ...), so they get their names afterwards.
    tests = [split for split in splits if split not in ("train", "valid")]
    arguments = ["--source-lang", "src", "--target-lang", "tgt", "--destdir", "."]
    arguments += ["--testpref", ",".join(f"text/{test}" for test in tests)]
    arguments += ["--workers", str(workers)]
    if prepared is None:
        arguments += ["--trainpref", "text/train", "--validpref", "text/valid"]
        arguments += ["--joined-dictionary"] if joined else []
    else:
        arguments += ["--srcdict", str(prepared / "dict.src.txt")]
        arguments += ["--tgtdict", str(prepared / "dict.tgt.txt")]
    program = "from fairseq_cli.preprocess import cli_main; cli_main()"
    with open(folder / LOG, "w", encoding="utf-8") as log, waiting("binarising"):
        # cwd: a folder named fairseq where the user is must not be taken for the package,
        # and relative paths contain no comma, at which fairseq would split them.
        status = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
        ).returncode
    if status != 0:
        tail = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        print("\n".join(tail), file=sys.stderr)
        raise InputError(
            f"fairseq-preprocess failed with status {status}; the end of its log is above."
        )
    # fairseq keeps a second, partial log of its own.
    (folder / "preprocess.log").unlink(missing_ok=True)
    name_test_sets(folder, tests)


def name_test_sets(folder: Path, tests: list[str]) -> None:
    """Rename fairseq's test, test1, test2, ... to the given names, whatever these are."""
    moved = []
    for number, test in enumerate(tests):
        made = f"test{number or ''}"
        for path in sorted(folder.glob(f"{made}.src-tgt.*")):
            # Set aside first: a set may be given the name `test2`, which another still has.
            moved.append((path.rename(folder / f"made-{path.name}"), test + path.name[len(made) :]))
    for path, name in moved:
        path.rename(folder / name)


def binarised_rows(index: Path) -> int | None:
    """Count the rows of a fairseq `.idx` file; None if it is not that of a memory-mapped one.

    Raises:
        InputError: if it is damaged.
        OSError: if it cannot be read.
    """
    with open(index, "rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            return None
    rows, _ = _header(index)
    if index.stat().st_size != _HEADER.size + rows * _BYTES_PER_ROW:
        raise InputError(f"{index.name} is damaged: it has another size than it says.")
    return rows


def binarised_symbols(data: Path) -> int:
    """Count the symbols in a fairseq `.bin` file, the end symbol of each row included.

    Raises:
        InputError: if the `.idx` file beside it is absent or not memory-mapped.
    """
    _, width = _header(data.with_suffix(".idx"))
    return data.stat().st_size // width


def _header(index: Path) -> tuple[int, int]:
    """Number of rows, and bytes per symbol, of a fairseq `.idx` file."""
    try:
        with open(index, "rb") as stream:
            magic, _, code, rows = _HEADER.unpack(stream.read(_HEADER.size))
    except (FileNotFoundError, struct.error):
        magic, code, rows = b"", 0, 0
    if magic != _MAGIC or code not in _WIDTHS:
        raise InputError(f"fairseq-preprocess did not write a usable {index.name}.")
    return int(rows), _WIDTHS[code]


def check_binarised(folder: Path, counts: dict[str, Counts]) -> None:
    """Refuse a result that has more or fewer sentences than the text had lines.

    Raises:
        InputError: naming the first file that differs.
    """
    for split, row in counts.items():
        for side in SIDES:
            rows, _ = _header(folder / f"{split}.src-tgt.{side}.idx")
            if rows != row.pairs:
                raise InputError(
                    f"fairseq-preprocess wrote {rows} sentences for {split}.{side}, but the text "
                    f"has {row.pairs}; nothing was put in place."
                )
