"""Reads checkpoints without running code from them, and refuses bad ones with a sentence."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import OmegaConf

from sut_fairseq._excepthook import show_input_errors_as_sentences
from sut_fairseq.checkpoints.exported import is_exported, read_exported
from sut_fairseq.checkpoints.integrity import check_file, check_whole, not_a_checkpoint, truncated
from sut_fairseq.checkpoints.settings import refuse_code
from sut_fairseq.errors import InputError

_fairseq_read = checkpoint_utils.load_checkpoint_to_cpu

_REFUSED_CLASS = re.compile(r"GLOBAL ([\w.]+)")


def load_checkpoint(path: str | Path, *, lazy: bool = False) -> dict[str, Any]:
    """Load a fairseq checkpoint on the CPU without running any code from it.

    fairseq's own settings load under `weights_only=True` because importing `sut_fairseq`
    allow-lists their few classes.

    Args:
        path: the checkpoint file, or exported weights (`model.safetensors`).
        lazy: map the file instead of reading it, so that tensors cost nothing until they are used.
            Only for a quick look: nothing is compared with its checksum, and the tensors must not
            be used once the file may have changed.

    Returns:
        fairseq's dictionary: `model`, `cfg` (or `args`), `extra_state`, `optimizer_history`, ...

    Raises:
        InputError: the file is missing, truncated, damaged, not a fairseq checkpoint, holds an
            object of a class that is not allow-listed, or a setting that is Python code.
    """
    path = Path(path)
    with _sentences(path):
        if is_exported(path):
            state = read_exported(path, lazy=lazy)
        else:
            (check_file if lazy else check_whole)(path)
            # Files from before torch 1.6 are no zip archives, and cannot be mapped.
            mapped = lazy and zipfile.is_zipfile(path)
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        _check_content(path, state)
    return state


def load_as_fairseq(path: str, *arguments: Any, **options: Any) -> Any:
    """Load a checkpoint by fairseq's `checkpoint_utils.load_checkpoint_to_cpu`, with checks.

    Args:
        path: the checkpoint file.
        arguments, options: the function's other arguments.

    Raises:
        InputError: as in `load_checkpoint`.
    """
    if is_exported(path):
        return _exported_as_fairseq(path, *arguments, **options)
    check_whole(path)
    with _sentences(Path(path)):
        state = _fairseq_read(path, *arguments, **options)
        _check_content(Path(path), state)
    return state


def _exported_as_fairseq(
    path: str, arg_overrides: Mapping[str, Any] | None = None, load_on_all_ranks: bool = False
) -> dict[str, Any]:
    """What `load_checkpoint_to_cpu` does after reading a file, for exported weights."""
    state = load_checkpoint(path)
    overrides = dict(arg_overrides or {})
    with _sentences(Path(path)):
        if state["args"] is not None:
            vars(state["args"]).update(overrides)
        if state["cfg"] is not None:
            state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
            overwrite_args_by_name(state["cfg"], overrides)
        upgraded: dict[str, Any] = checkpoint_utils._upgrade_state_dict(state)
    return upgraded


def first_not_finite(tensors: Mapping[str, torch.Tensor]) -> str | None:
    """Name of the first tensor with NaN or infinite numbers, which loading refuses; None: none has.

    fairseq's adaptive layers also save a `_float_tensor` that nothing fills or reads; it is passed
    over.
    """
    for name, tensor in tensors.items():
        used = tensor.is_floating_point() and not name.endswith("_float_tensor")
        if used and not torch.isfinite(tensor).all():
            return name
    return None


def guard_fairseq() -> None:
    """Make fairseq check every checkpoint that it reads, as we do.

    Called before anything is read: when a command of fairseq imports the plugin, and when we load
    a model, since some of fairseq's models name a second checkpoint in their settings. torch
    refuses classes and functions there as well, but not flipped bytes, nor code among the settings.
    """
    checkpoint_utils.load_checkpoint_to_cpu = _checked


def _checked(path: str, *arguments: Any, **options: Any) -> Any:
    """`load_checkpoint_to_cpu`, with checks of what is not on another file system."""
    show_input_errors_as_sentences()
    read = load_as_fairseq if Path(path).exists() else _fairseq_read
    return read(path, *arguments, **options)


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """Tell in a sentence why torch cannot, or will not, load a checkpoint."""
    try:
        with warnings.catch_warnings():
            # torch warns of pickles that it did not write; the errors below say it better.
            warnings.simplefilter("ignore")
            yield
    except EOFError as error:
        raise InputError(truncated(path)) from error
    except pickle.UnpicklingError as error:
        refused = _REFUSED_CLASS.search(str(error))
        if refused is None:
            raise InputError(not_a_checkpoint(path)) from error
        raise InputError(
            f"`{path}` holds an object of the class `{refused[1]}`, which is refused because "
            f"loading it could run code; a checkpoint may hold tensors, plain values and fairseq's "
            f"own settings only, so save it again without that object."
        ) from error
    except (OSError, InputError):
        raise
    except Exception as error:
        # Damaged bytes make torch's reader fail in many ways (KeyError, RuntimeError, ...), and
        # all of them mean the same to the user.
        raise InputError(not_a_checkpoint(path)) from error


def _check_content(path: Path, state: Any) -> None:
    """Refuse what fairseq has not written, or would run code when a model is built from it."""
    if not isinstance(state, Mapping) or not _is_fairseqs(state):
        raise InputError(not_a_checkpoint(path))
    refuse_code(path, state)


def _is_fairseqs(state: Mapping[Any, Any]) -> bool:
    """Whether those parts of a dictionary that are there are as fairseq writes them."""
    model, history, cfg = (state.get(key) for key in ("model", "optimizer_history", "cfg"))
    extra = state.get("extra_state") or {}
    mappings = [cfg, extra, state.get("task_state")]
    settings = [state.get("args")]
    if isinstance(cfg, Mapping):
        settings += [cfg.get("model"), cfg.get("task")]
    return (
        isinstance(model, Mapping)
        and all(isinstance(name, str) and _is_stored(model[name]) for name in model)
        and _counts(history, "num_updates")
        and all(isinstance(one, (Mapping, NoneType)) for one in mappings)
        and _counts(extra.get("averaged_from"), "updates")
        and all(isinstance(one, (Mapping, Namespace, NoneType)) for one in settings)
    )


def _is_stored(value: Any) -> bool:
    """Whether this is a tensor with all of its numbers in memory."""
    return torch.is_tensor(value) and value.layout == torch.strided and not value.is_meta


def _counts(entries: Any, name: str) -> bool:
    """Whether this is None, or a list of dictionaries in which `name` is a whole number."""
    return entries is None or (
        isinstance(entries, list)
        and all(isinstance(one, Mapping) and isinstance(one.get(name, 0), int) for one in entries)
    )
