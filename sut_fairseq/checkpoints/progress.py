"""Training progress of a checkpoint, read without loading it, even from a truncated file."""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sut_fairseq.checkpoints.integrity import shows_damage, unreadable

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a record in a zip archive: ends with two lengths


@dataclass(frozen=True)
class Progress:
    """What a checkpoint says about its training.

    Attributes:
        updates: the number of updates so far.
        resumable: whether a training can resume from it: it has the place in the data and the state
            of the optimizer, which averaged checkpoints lack.
    """

    updates: int
    resumable: bool


def progress_of(path: Path) -> Progress | None:
    """What a checkpoint says about its training; None if that cannot be read.

    torch writes the structure before the tensors, so that truncated files have it too. No
    class is looked up and no code runs; the tensors are not read.

    Raises:
        InputError: the file is there, may be whole, and cannot be read now.
    """
    if not path.is_file():  # opening a pipe would wait for its other end
        return None
    try:
        with path.open("rb") as file:
            _to_content(file)
            state = _Skimmer(file).load()
        return Progress(
            updates=int(state["optimizer_history"][-1]["num_updates"]),
            resumable="last_optimizer_state" in state and "train_iterator" in state["extra_state"],
        )
    except OSError as error:
        if not shows_damage(error):
            raise unreadable(path, error) from error
        return None
    except Exception:
        return None  # damaged bytes make a pickle fail in many ways


def _to_content(file: BinaryIO) -> None:
    """Go to the content of the first record of a zip archive, which torch calls `data.pkl`."""
    magic, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if magic != b"PK\x03\x04" or not file.read(name).endswith(b"/data.pkl"):
        raise ValueError("not torch's archive")
    file.seek(extra, 1)


class _Anything:
    """Stands for every object whose class is not looked up."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, item: object) -> None:
        """As in a list: pickles fill its subclasses this way."""

    def extend(self, items: object) -> None:
        """Likewise."""


class _Skimmer(pickle.Unpickler):
    """Reads plain values, lists and dictionaries; whatever else there is becomes `_Anything`."""

    def find_class(self, module: str, name: str) -> Any:
        return OrderedDict if (module, name) == ("collections", "OrderedDict") else _Anything

    def persistent_load(self, pid: object) -> _Anything:
        return _Anything()
