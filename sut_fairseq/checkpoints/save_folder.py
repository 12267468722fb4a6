"""The folder of a training's checkpoints: it can be written, by one training at a time."""

from __future__ import annotations

import fcntl
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

from sut_fairseq.errors import InputError

# Seconds. Data workers outlive a killed training by a few, and hold its folder meanwhile.
_PATIENCE = 15.0

_held: dict[tuple[int, int], int] = {}  # descriptors of this process's folders


def telling_why(verify: Callable[[str], None]) -> Callable[[str], None]:
    """fairseq's check that the save folder can be written, with a sentence if it cannot."""

    @functools.wraps(verify)
    def verified(save_dir: str) -> None:
        try:
            verify(save_dir)
        except OSError as error:
            raise InputError(
                f"--save-dir {save_dir} cannot be written ({error.strerror or error}): mend that "
                "or choose another folder."
            ) from error

    return verified


def claim(folder: Path) -> None:
    """Keep other trainings out of a folder until this process ends.

    A file system without locks keeps nobody out.

    Raises:
        InputError: if another training is using it.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return  # fairseq makes the folder where there is none, or says why it cannot
    state = os.fstat(descriptor)
    if (state.st_dev, state.st_ino) in _held:
        os.close(descriptor)
        return
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise InputError(
                    f"another training saves its checkpoints in {folder}: wait for its end, stop "
                    "it, or choose another --save-dir."
                ) from None
            time.sleep(0.2)
            continue
        except OSError:
            os.close(descriptor)
            return
        _held[state.st_dev, state.st_ino] = descriptor
        return
