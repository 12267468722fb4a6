"""A result folder that appears complete or not at all, and is reused while its inputs are the same.

It is built as a hidden sibling and renamed at the end. Its stamp, prepared.json, has the keys

    dataset    name of a known data set (`scan`); absent for a user's own text
    split      which of its splits (`addprim_jump`), where it has several
    limited    true where `--limit` left examples out; absent otherwise
    options    other options that change the data set (`--test-depths 7`), if any
    recipe     checksum of raw files, options and programs; absent for a user's own text
    made_from  checksums of the text and the options that decide what the folder holds
    counts     numbers of each set, in the order of `treatment.Counts`
    files      size in bytes of every file by its path in the folder
    also       checksums of the text of sets that were added later (`folders.adding`), if any

The first four say with which published result the folder is comparable.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sut_data.errors import InputError
from sut_data.files import (
    check_can_make,
    is_abandoned,
    leftovers,
    naming,
    own_mark,
    put_aside,
    write_whole,
)
from sut_data.text.treatment import Counts

STAMP = "prepared.json"
ADDED = "added.json"  # a journal: the sets that a process is putting into a folder
_NOT_LISTED = re.compile(r"prepared\.json|\.\d+(@[\w.]*)?-(prepared|added)\.json")


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of every file under `folder` but the stamp, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    # A run that was killed while it wrote a stamp leaves `.<mark>-prepared.json`.
    return {name: size for name, size in sizes.items() if not _NOT_LISTED.fullmatch(name)}


def read_stamp(out: Path) -> dict[str, Any] | None:
    """Return the stamp of an earlier run, or None if there is no folder.

    The leftovers of a process killed while it wrote a stamp or added sets are deleted.

    Raises:
        InputError: if `out` is in use by something else, which must not be deleted.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    try:
        stamp: dict[str, Any] = json.loads((out / STAMP).read_text(encoding="utf-8"))
        stamp["files"], stamp["counts"]["train"], stamp["made_from"]  # noqa: B018
        check_stamp(stamp)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"--out {out} exists and was not made by this program: remove it or choose another "
            "name."
        ) from None
    for journal in leftovers(out, ADDED):
        _take_back(out, journal, stamp)
    for unfinished in leftovers(out, STAMP):
        unfinished.unlink()
    return stamp


def check_stamp(stamp: dict[str, Any]) -> None:
    """Refuse a stamp that was edited by hand, so that its readers need not check it.

    Raises:
        TypeError: if a part is not of its form.
    """
    for name in ("files", "counts", "made_from", "also"):
        if not isinstance(stamp.get(name, {}), dict):
            raise TypeError(f"{name} must be a mapping")
    if not isinstance(stamp.get("made_from", {}).get("inputs", {}), dict):
        raise TypeError("inputs must be a mapping")
    for name, size in stamp.get("files", {}).items():
        if not isinstance(size, int):
            raise TypeError(f"the size of {name} must be a whole number")
    most = len(Counts._fields)
    least = most - len(Counts._field_defaults)  # stamps of older versions have fewer
    for name, row in stamp.get("counts", {}).items():
        numbers = isinstance(row, list) and all(isinstance(one, int) for one in row)
        if not numbers or not least <= len(row) <= most:
            raise TypeError(f"counts of {name} must be {least} to {most} whole numbers")


def _take_back(out: Path, journal: Path, stamp: dict[str, Any]) -> None:
    """Delete files of sets that are in a journal, but not in the stamp."""
    try:
        names = [str(name) for name in json.loads(journal.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        names = []  # it was not written to its end, so no file was moved yet
    for name in file_sizes(out):
        if name not in stamp["files"] and set_of(name) in names:
            (out / name).unlink()
    journal.unlink()


def set_of(file: str) -> str:
    """Return the set that a file belongs to, by its path in the folder."""
    return file.removeprefix("text/").partition(".")[0]


def added_sets(stamp: dict[str, Any]) -> set[str]:
    """Return the sets of a folder that were added after it was made."""
    return {set_of(name) for name in stamp.get("also", {})}


def without_added(stamp: dict[str, Any]) -> dict[str, Any]:
    """Return a stamp as it was before sets were added."""
    added = added_sets(stamp)
    kept = {key: value for key, value in stamp.items() if key != "also"}
    for key in ("counts", "files"):
        values = stamp.get(key, {}).items()
        kept[key] = {name: value for name, value in values if set_of(name) not in added}
    return kept if added else stamp


def check_replaceable(out: Path, stamp: dict[str, Any], sets: Iterable[str]) -> None:
    """Refuse to rebuild a folder to which files or sets have been added.

    Args:
        out: the folder.
        stamp: its stamp.
        sets: those that the new folder will have.

    Raises:
        InputError: naming one such file or set.
    """
    lost = sorted(added_sets(stamp) - set(sets))
    if lost:
        raise InputError(
            f"--out {out} must be made anew, but has the set {lost[0]}, which was added to it: "
            "move the folder away or choose another name, and add the set again."
        )
    foreign = sorted(set(file_sizes(out)) - set(stamp["files"]))
    if foreign:
        raise InputError(
            f"--out {out} must be made anew, but holds {foreign[0]}, which this program did not "
            "put there: move it away or choose another name."
        )


def remove_leftovers(out: Path, *purposes: str) -> None:
    """Delete folders that killed runs left beside `out`; those of live runs are kept.

    Args:
        out: the folder.
        purposes: as for `hidden_folder`, and "old": a folder that was replaced.
    """
    names = {f".{out.name}.{purpose}" for purpose in purposes}
    with suppress(PermissionError):  # the parent folder may be another user's
        for folder in out.parent.iterdir():
            name, _, mark = folder.name.rpartition("-")
            if name in names and is_abandoned(mark):
                shutil.rmtree(folder, ignore_errors=True)


def is_whole(out: Path, stamp: dict[str, Any]) -> bool:
    """Tell whether the folder still has all its files, with unchanged sizes."""
    sizes: dict[str, int] = stamp["files"]
    return sizes.items() <= file_sizes(out).items()


@contextmanager
def hidden_folder(out: Path, purpose: str, *, replaces: bool = True) -> Iterator[Path]:
    """Yield an empty folder beside `out`, where there is room for it, and delete it at the end.

    What killed runs with the same purpose left behind is deleted first.

    Args:
        out: the absolute path of the folder that is to be made.
        purpose: a word that becomes part of its name.
        replaces: what is made will take the place of `out`.

    Raises:
        InputError: if there is no right to write beside `out`, it could not be replaced, or fairseq
            could not read it.
        OSError: naming `out`, if there is no room for the files.
    """
    check_can_make(out, str(out))
    if replaces and os.path.ismount(out):
        raise InputError(f"{out} is a mount point, which cannot be replaced: name a folder in it.")
    if replaces and Path.cwd().is_relative_to(out):
        raise InputError(
            f"{out} would be replaced, but it is the current folder or has it inside: run the "
            "command from another one, or name a folder in it."
        )
    if os.pathsep in str(out):
        raise InputError(
            f"{out}: fairseq takes `{os.pathsep}` for the end of a folder's name and the start of "
            "the next, so it could not read this one: choose a place without it."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out, purpose)
    folder = out.with_name(f".{out.name}.{purpose}-{own_mark()}")
    try:
        folder.mkdir()  # here, so that Ctrl-C right after it deletes it too
        with naming(out):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alone(out: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from adding sets to a folder, or replacing it, meanwhile.

    Args:
        out: the folder.
        wait: for the end of what another process does with it; otherwise that is an error.

    Raises:
        InputError: if another process is at it.
    """
    folder = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"another process is adding a set to {out}: wait for it.") from None
        yield
    finally:
        os.close(folder)


@contextmanager
def put_in_place(out: Path, sets: Iterable[str]) -> Iterator[Path]:
    """Yield an empty folder beside `out`; rename it to `out` if the block succeeds.

    An earlier `out` is replaced, but kept under another name if meanwhile files or sets were put
    into it. If the block fails, the new folder is deleted and `out` stays as it was.

    Args:
        out: the folder.
        sets: those that the new folder will have.
    """
    with hidden_folder(out, "partial") as partial:
        remove_leftovers(out, "old")
        yield partial
        if not out.exists():
            partial.rename(out)
            return
        with alone(out, wait=True):
            foreign = _put_there_meanwhile(out, sets)
            if foreign:
                old = put_aside(out, "earlier")
            else:
                old = out.rename(out.with_name(f".{out.name}.old-{own_mark()}"))
            try:
                partial.rename(out)
            except BaseException:
                old.rename(out)
                raise
        if foreign:
            print(f"While {out} was made anew, it changed: the earlier folder is kept as {old}.")
        else:
            shutil.rmtree(old)


def _put_there_meanwhile(out: Path, sets: Iterable[str]) -> bool:
    """Tell whether an existing `out` has become one that must not be deleted."""
    try:
        stamp = read_stamp(out)
        if stamp:
            check_replaceable(out, stamp, sets)
    except InputError:
        return True
    return False


def write_stamp(folder: Path, stamp: dict[str, Any]) -> None:
    """Write the stamp of a folder, or replace it: a reader finds the old one or the new one."""
    write_whole(folder / STAMP, json.dumps(stamp, indent=1) + "\n")
