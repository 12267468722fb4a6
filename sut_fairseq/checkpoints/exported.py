"""Exported models: weights in the safetensors format, everything else of a checkpoint as JSON.

Neither can hold code, and other programs read both.
"""

from __future__ import annotations

import json
import math
import shutil
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sut_data.text.pairs import checksum
from sut_fairseq.checkpoints.integrity import DamagedCheckpointError
from sut_fairseq.checkpoints.writing import shared_memory
from sut_fairseq.errors import InputError

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
_FORMAT = 1
# Parts of a checkpoint besides its weights that mean something without an optimizer.
_KEPT = ("cfg", "args", "task_state", "optimizer_history", "extra_state")
_KEPT_EXTRA = ("val_loss", "train_iterator", "averaged_from", "imported_from")
# Keys that mark values for which JSON has no notation.
_NAMESPACE, _TUPLE, _FLOAT = "__namespace__", "__tuple__", "__float__"


def is_exported(path: str | Path) -> bool:
    """Whether this is the name of exported weights."""
    return Path(path).suffix == ".safetensors"


def write_exported(state: Mapping[str, Any], folder: Path) -> None:
    """Write a checkpoint into an empty folder as `model.safetensors` and `config.json`.

    Tensors that share memory are written once; the configuration says which those are.

    Args:
        state: fairseq's dictionary; its optimizer state and logged numbers are left out.
        folder: where to write.

    Raises:
        InputError: if something in it is neither a tensor nor a plain value, or if it could not be
            written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    leaders = shared_memory(state["model"])
    own = {
        key: tensor.contiguous().clone()
        for key, tensor in state["model"].items()
        if leaders[key] == key
    }
    path = folder / WEIGHTS
    try:
        save_file(own, path, metadata={"format": "pt"})
    except SafetensorError as error:  # its text has the system's message
        raise InputError(
            f"{WEIGHTS} could not be written ({error}): make room, or choose another folder."
        ) from error
    document: dict[str, Any] = {
        "format": _FORMAT,
        "sha256": checksum(path),
        "parameters": list(state["model"]),
        "shared": {key: leader for key, leader in leaders.items() if key != leader},
    }
    for key in _KEPT:
        value = state.get(key)
        if value is not None and key == "extra_state":
            value = {name: value[name] for name in _KEPT_EXTRA if name in value}
        if value is not None:
            document[key] = _plain(key, value)
    # In ASCII: the name of a folder in the settings need not be valid Unicode.
    text = json.dumps(document, indent=1, allow_nan=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    shutil.copymode(folder / CONFIG, path)  # safetensors makes it readable for its owner only


def read_exported(path: str | Path, *, lazy: bool = False) -> dict[str, Any]:
    """Read what `write_exported` wrote, as fairseq's dictionary.

    Args:
        path: `model.safetensors`, with `config.json` beside it.
        lazy: do not compare the weights with their checksum.

    Raises:
        InputError: if a file is missing, damaged, or something else.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file `{path}`; check its path.")
    document = _read_config(path.parent / CONFIG)
    if not lazy and checksum(path) != document["sha256"]:
        raise DamagedCheckpointError(
            f"`{path}` is damaged: its checksum is not the one in {CONFIG}, so copy both files "
            "again or export the model again."
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedCheckpointError(
            f"`{path}` cannot be read as safetensors ({error}): copy it again or export the model "
            "again."
        ) from error
    model: dict[str, Tensor] = {}
    for key in document["parameters"]:
        leader = document["shared"].get(key, key)
        if leader not in tensors:
            raise DamagedCheckpointError(
                f"`{path}` lacks `{leader}`, which {CONFIG} names: the two files are not of one "
                "export, so copy both again."
            )
        model[key] = tensors[leader]
    kept = {key: _restored(document[key]) for key in _KEPT if key in document}
    return {"args": None, "cfg": None, **kept, "model": model}


def _read_config(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():  # reading a pipe or a device may never end
        raise InputError(f"`{path}` is no file: export the model again.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"There is no {CONFIG} beside the weights in `{path.parent}`; `sut-export` writes "
            "both, so copy it there."
        ) from None
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"`{path}` cannot be read as JSON: {error}.") from error
    kinds = {"format": int, "sha256": str, "parameters": list, "shared": dict}
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), kind) for key, kind in kinds.items()
    ):
        raise InputError(f"`{path}` was not written by `sut-export`: export the model again.")
    if document["format"] > _FORMAT:
        raise InputError(
            f"`{path}` has the format {document['format']}, but this version reads up to "
            f"{_FORMAT}: install a newer sut_fairseq."
        )
    return document


def _plain(name: str, value: Any) -> Any:
    """A value in JSON's types, which `_restored` turns back into the same value."""
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy or torch
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}  # the validation loss of a training that diverged
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Namespace):
        return {_NAMESPACE: _plain(name, vars(value))}
    if isinstance(value, Mapping):
        taken = {_NAMESPACE, _TUPLE, _FLOAT} & value.keys()
        if taken or not all(isinstance(key, str) for key in value):
            raise InputError(
                f"`{name}` of the checkpoint has keys that JSON cannot hold: export it with "
                "--format pt."
            )
        return {key: _plain(f"{name}.{key}", one) for key, one in value.items()}
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(name, one) for one in value]}
    if isinstance(value, list):
        return [_plain(name, one) for one in value]
    raise InputError(
        f"`{name}` of the checkpoint is a {type(value).__name__}, which JSON cannot hold: export "
        "it with --format pt."
    )


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_NAMESPACE}:
        return Namespace(**_restored(value[_NAMESPACE]))
    if value.keys() == {_TUPLE}:
        return tuple(_restored(value[_TUPLE]))
    if value.keys() == {_FLOAT}:
        return float(value[_FLOAT])
    return {key: _restored(one) for key, one in value.items()}
