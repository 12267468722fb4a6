"""Turn checked text into the folder that fairseq reads, unless that is there already."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sut_data.errors import InputError
from sut_data.folders.binarise import LOG, binarise, check_binarised
from sut_data.folders.prepared import (
    check_replaceable,
    file_sizes,
    is_whole,
    put_in_place,
    read_stamp,
    remove_leftovers,
    write_stamp,
)
from sut_data.text.chunks import cores
from sut_data.text.pairs import Inputs, check_files, checksum
from sut_data.text.pipeline import prepare_text
from sut_data.text.treatment import Treatment
from sut_data.waiting import Stopwatch, waiting

LAYOUT = 3  # part of the stamp: raise it when the form of the output changes
FOUND = ("made_from", "counts", "files", "also")  # keys of the stamp that describe the contents
PARALLEL_FROM = 200_000  # training pairs; below, fairseq's workers cost more than they save


def check_fairseq() -> None:
    """Refuse to begin without fairseq.

    Raises:
        InputError: saying how to install it.
    """
    if find_spec("fairseq") is None:
        raise InputError(
            f"fairseq is not installed for {sys.executable}: run `pip install .` in the "
            "repository, or activate the environment that has it."
        )


def make_folder(
    out: Path,
    inputs: Inputs,
    treatment: Treatment,
    notes: dict[str, Any],
    watch: Stopwatch | None = None,
) -> dict[str, Any]:
    """Make the folder, or only update its notes if it already holds the same.

    Args:
        out: its absolute path.
        inputs: the files.
        treatment: what is done to their text.
        notes: keys of the stamp that do not decide what the folder holds (see `folders.prepared`).
        watch: started when the work began; None: it begins now.

    Returns:
        the stamp.

    Raises:
        InputError: if the files cannot be used, or `out` holds something else.
    """
    watch = watch or Stopwatch()
    check_files(inputs)
    with waiting("computing checksums"):
        checksums = {name: checksum(path) for name, path in inputs.files().items()}
    made_from = {
        "layout": LAYOUT,
        **treatment._asdict(),
        "languages": list(treatment.languages),  # as JSON reads it back
        "inputs": checksums,
    }
    stamp = read_stamp(out)
    if stamp and holds(stamp, made_from) and is_whole(out, stamp):
        remove_leftovers(out, "partial", "old")
        report_current(out)
        found = {key: stamp[key] for key in FOUND if key in stamp}
        if stamp != {**notes, **found}:
            write_stamp(out, {**notes, **found})
        return {**notes, **found}
    if stamp:
        check_replaceable(out, stamp, inputs.pairs)
    stamp = _build(out, inputs, treatment, {**notes, "made_from": made_from})
    print(f"{out} is ready ({watch}; log: {LOG} in it).")
    return stamp


def holds(stamp: dict[str, Any], made_from: dict[str, Any]) -> bool:
    """Tell whether a folder has what is wanted, made in the same way; sets may have been added."""
    there = dict(stamp["made_from"])
    inputs, wanted = there.pop("inputs", {}), dict(made_from)
    files = wanted.pop("inputs")
    both = {**inputs, **stamp.get("also", {})}
    return there == wanted and inputs.items() <= files.items() <= both.items()


def report_current(out: Path) -> None:
    """Say that a second run has nothing to do."""
    print(f"{out} is up to date; nothing to do.")


def _build(
    out: Path, inputs: Inputs, treatment: Treatment, stamp: dict[str, Any]
) -> dict[str, Any]:
    """Make the whole folder and put it at `out`; returns `stamp` and what the folder holds."""
    with put_in_place(out, inputs.pairs) as folder:
        counts = prepare_text(inputs, treatment, folder)
        workers = cores() if counts["train"].pairs >= PARALLEL_FROM else 1
        binarise(folder, counts, treatment.joined, workers)
        check_binarised(folder, counts)
        stamp = {**stamp, "counts": counts, "files": file_sizes(folder)}
        write_stamp(folder, stamp)
    return stamp
