"""Our JSON files: read with clear errors, written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from sut_data.files import write_whole
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.typed import Place, build

T = TypeVar("T")

_REMEDY = "remove it and make it again"


def read_json(path: Path, remedy: str = _REMEDY) -> Any:
    """Read one of our JSON files.

    Args:
        path: the file.
        remedy: what to do if it is damaged.

    Raises:
        InputError: if it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): {remedy}.") from error


def read_as(kind: type[T], path: Path, remedy: str = _REMEDY) -> T:
    """Read one of our JSON files as a dataclass.

    Args:
        kind: the dataclass.
        path: the file.
        remedy: as in `read_json`.

    Raises:
        InputError: if it is damaged, or does not fit the dataclass.
    """
    return build(kind, read_json(path, remedy), Place(path, {}))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file; an existing file is replaced atomically."""
    write_whole(path, json.dumps(document, indent=2) + "\n")
