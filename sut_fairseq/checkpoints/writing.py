"""Checkpoints that appear whole or not at all, and which of their tensors share memory."""

from __future__ import annotations

import errno
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sut_data.files import leftovers, written_whole
from sut_fairseq.errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ENDING = ".tmp"  # so that nothing takes it for a checkpoint
_TRIES, _PAUSE = 3, 2.5  # as often as fairseq tries; seconds between

logger = logging.getLogger(__name__)


def save(state: Mapping[str, Any], path: Path) -> None:
    """Save a checkpoint; a file of that name is replaced only by a whole one that is on the disk.

    A link is replaced too; a pipe or a device is written to.

    Raises:
        InputError: it could not be written, in a sentence that says why.
    """

    def write(partial: Path) -> None:
        # An open file: given a path, torch would name the records after the temporary file.
        with partial.open("wb") as file:
            torch.save(state, file)

    _write(path, write)


def copy(source: Path, target: Path) -> None:
    """Copy a checkpoint, as safely as `save` writes one.

    A hard link would be quicker, but whatever happens to one file, such as a broken `cp` onto it,
    would then happen to the other.

    Raises:
        InputError: as in `save`.
    """
    _write(target, lambda partial: shutil.copyfile(source, partial))


def clear_leftovers(folder: Path) -> None:
    """Delete what killed processes left half-written in a folder of checkpoints.

    These are the files that `save` and `copy` began, and the `*.pt.tmp` that fairseq writes.
    """
    found = [*leftovers(folder, f"*.pt{_ENDING}"), *folder.glob("[!.]*.pt.tmp")]
    for path in found:
        path.unlink(missing_ok=True)
    if found:
        names = ", ".join(path.name for path in found)
        logger.info("deleted what a killed process left half-written: %s", names)


def shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each key, the first key whose tensor has the same memory; mostly the key itself."""
    first: dict[tuple[Any, ...], str] = {}
    leaders: dict[str, str] = {}
    for key, tensor in tensors.items():
        # Empty tensors all have the address 0 without sharing anything.
        place: tuple[Any, ...] = (key,)
        if tensor.numel():
            place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        leaders[key] = first.setdefault(place, key)
    return leaders


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file, with retries if the reason of a failure may be temporary."""
    for attempt in range(1, _TRIES + 1):
        try:
            # A link is replaced: `checkpoint_best.pt` may be one that points to another checkpoint.
            with written_whole(path, _ENDING, follow_links=False) as partial:
                write(partial)
            return
        except (OSError, RuntimeError) as error:
            # torch reports a full disk as a wrong position; the exception before it has the reason.
            reason = _of_the_system(error)
            if reason is None:
                raise
            if reason.errno in _NO_ROOM or attempt == _TRIES:
                raise InputError(_sentence(path, reason)) from error
        time.sleep(_PAUSE)


def _of_the_system(error: BaseException | None) -> OSError | None:
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _sentence(path: Path, reason: OSError) -> str:
    remedy = "make room" if reason.errno in _NO_ROOM else "put that right"
    return (
        f"`{path}` could not be written ({reason.strerror or reason}): what was there before is as "
        f"it was; {remedy} and give the same command again."
    )
