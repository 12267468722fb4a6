"""Our JSON files: read with clear errors, written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sut_data.files import write_whole
from sut_fairseq.errors import InputError


def read_json(path: Path) -> Any:
    """Read one of our JSON files.

    Raises:
        InputError: if it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): remove it and make it again.") from error


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file; an existing file is replaced atomically."""
    write_whole(path, json.dumps(document, indent=2) + "\n")
