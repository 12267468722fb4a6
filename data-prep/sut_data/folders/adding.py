"""Add evaluation sets to a prepared folder, made in the same way as the folder.

They are made beside the folder, with its tokenisation, subwords and dictionaries, and then renamed
into it. The new stamp, which is written last, makes them part of the folder. Until then a journal
(`prepared.ADDED`) names them, so that the next process deletes what a killed one leaves.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sut_data.errors import InputError
from sut_data.files import own_mark
from sut_data.folders.binarise import LOG, binarise, check_binarised
from sut_data.folders.making import LAYOUT
from sut_data.folders.prepared import (
    ADDED,
    STAMP,
    alone,
    file_sizes,
    hidden_folder,
    is_whole,
    read_stamp,
    set_of,
    write_stamp,
)
from sut_data.interrupts import uninterrupted
from sut_data.text.pairs import SIDES, Inputs, checksum
from sut_data.text.pipeline import prepare_text
from sut_data.text.treatment import Counts, Treatment


def read_folder(out: Path) -> tuple[dict[str, Any], Treatment]:
    """Return the stamp of a folder, and what was done to its text.

    Raises:
        InputError: if it was not made by this version, or is incomplete.
    """
    stamp = read_stamp(out) if (out / STAMP).is_file() else None
    if stamp is None:
        raise InputError(f"{out} is not a folder that `sut-prepare` made: make one first.")
    if stamp["made_from"].get("layout") != LAYOUT:
        raise InputError(f"{out} was made by another version of this program: make it again.")
    if not is_whole(out, stamp):
        raise InputError(f"{out} lacks files that were in it: make it again.")
    fields = {name: stamp["made_from"].get(name) for name in Treatment._fields}
    try:
        source, target = fields.pop("languages")
    except (TypeError, ValueError):
        raise InputError(f"{out}/{STAMP} was changed by hand: make the folder again.") from None
    return stamp, Treatment(languages=(source, target), **fields)


def add(out: Path, inputs: Inputs) -> dict[str, Counts]:
    """Add sets to a prepared folder, all or none of them.

    Args:
        out: its absolute path.
        inputs: files of the new sets, whose names are not in the folder.

    Returns:
        the counts of each new set.

    Raises:
        InputError: if the folder or the files cannot be used.
    """
    with alone(out):
        stamp, treatment = read_folder(out)
        _check_room(out, inputs)
        with hidden_folder(out, "also", replaces=False) as folder:
            counts = prepare_text(inputs, treatment, folder, prepared=out)
            binarise(folder, counts, treatment.joined, 1, prepared=out)
            check_binarised(folder, counts)
            for name in (LOG, *(f"dict.{side}.txt" for side in SIDES)):
                (folder / name).unlink()
            sizes = file_sizes(folder)
            also = {name: checksum(path) for name, path in inputs.files().items()}
            if read_stamp(out) != stamp:
                raise InputError(f"{out} has been changed by another process: try again.")
            new = {
                **stamp,
                "counts": {**stamp["counts"], **counts},
                "files": dict(sorted({**stamp["files"], **sizes}.items())),
                "also": {**stamp.get("also", {}), **also},
            }
            _put(folder, out, new)
    return counts


def _check_room(out: Path, inputs: Inputs) -> None:
    """Refuse set names that files of the folder already use, whoever put them there.

    Raises:
        InputError: naming one such file.
    """
    for name in sorted(file_sizes(out)):
        if set_of(name) in inputs.pairs:
            raise InputError(f"{out} has a file {name} already: choose another name for the set.")


def _put(folder: Path, out: Path, stamp: dict[str, Any]) -> None:
    """Move all files of `folder` to `out`, and write its new stamp."""
    names = list(file_sizes(folder))
    for name in names:
        with open(folder / name, "rb") as file:
            os.fsync(file.fileno())
    journal = out / f".{own_mark()}-{ADDED}"
    with uninterrupted():
        try:
            journal.write_text(json.dumps(sorted(set(map(set_of, names)))), encoding="utf-8")
            for name in names:
                (folder / name).rename(out / name)
            write_stamp(out, stamp)
        except BaseException:
            for name in names:
                (out / name).unlink(missing_ok=True)
            raise
        finally:
            journal.unlink(missing_ok=True)
