"""What the console commands share: clear errors, JSON output and safe loading of checkpoints."""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

# fairseq's own settings load under `weights_only=True` because importing the package allow-lists
# their few classes.
import sut_fairseq  # noqa: F401
from sut_fairseq._requirements import missing_extra
from sut_fairseq.errors import InputError
from sut_fairseq.tokenization import TokenizationError

BAD_INPUT = 2

_REFUSED_CLASS = re.compile(r"GLOBAL ([\w.]+)")


def run_command(name: str, body: Callable[[], None]) -> int:
    """Run the body of a console command and report bad input in one sentence.

    Args:
        name: the command's name, which starts the error line.
        body: the work; it raises `InputError`, `TokenizationError` or `OSError` for bad input,
            `ModuleNotFoundError` without an extra that it needs.

    Returns:
        exit code: 0 when `body` finishes, 2 when the input was bad or an extra is missing. Any
        other exception is a defect of ours and keeps its traceback.
    """
    loggers = [logging.getLogger(package) for package in ("fairseq", "sut_fairseq")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:  # their informational lines; warnings and errors still appear
        logger.setLevel(logging.WARNING)
    try:
        body()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, say) has left. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (InputError, TokenizationError, OSError) as error:
        print(f"{name}: error: {_as_sentence(error)}", file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        sentence = missing_extra(error)
        if sentence is None:
            raise
        print(f"{name}: error: {sentence}", file=sys.stderr)
        return BAD_INPUT
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
    return 0


def print_json(document: Mapping[str, Any]) -> None:
    """Print `document` on standard output as indented JSON."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def whole_number(text: str) -> int:
    """Argument type of argparse: a whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but is {text!r}")
    return number


def load_checkpoint(path: str | Path, *, lazy: bool = False) -> dict[str, Any]:
    """Load a fairseq checkpoint on the CPU without running any code from it.

    Args:
        path: the checkpoint file.
        lazy: map the file instead of reading it, so that tensors cost nothing until they are used.
            Only for a quick look: the tensors must not be used once the file may have changed.

    Returns:
        fairseq's dictionary: `model`, `cfg` (or `args`), `extra_state`, `optimizer_history`, ...

    Raises:
        ValueError: the file is missing, truncated, not a fairseq checkpoint, or holds an object
            of a class that is not allow-listed.
    """
    path = Path(path)
    _check_file(path)
    try:
        # Checkpoints in torch's format from before 1.6 are no zip archives and cannot be mapped.
        mapped = lazy and zipfile.is_zipfile(path)
        with warnings.catch_warnings():
            # torch remarks on pickles that it did not write; the errors below say it better.
            warnings.simplefilter("ignore")
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except EOFError as error:
        raise InputError(_truncated(path)) from error
    except pickle.UnpicklingError as error:
        refused = _REFUSED_CLASS.search(str(error))
        if refused is None:
            raise InputError(_not_a_checkpoint(path)) from error
        raise InputError(
            f"`{path}` holds an object of the class `{refused[1]}`, which is refused because "
            f"loading it could run code; a checkpoint may hold tensors, plain values and fairseq's "
            f"own settings only, so save it again without that object."
        ) from error
    except OSError:
        raise
    except Exception as error:
        # Damaged bytes make torch's reader fail in many ways (KeyError, RuntimeError, ...), and
        # all of them mean the same to the user.
        raise InputError(_not_a_checkpoint(path)) from error
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(model, Mapping) or not all(torch.is_tensor(v) for v in model.values()):
        raise InputError(_not_a_checkpoint(path))
    return state


def _check_file(path: Path) -> None:
    """Refuse what is no file, and a zip archive without its end, before torch sees it."""
    if path.is_dir():
        raise InputError(f"`{path}` is a folder; give the checkpoint file itself.")
    if not path.exists():
        raise InputError(f"There is no checkpoint `{path}`; check its path.")
    with path.open("rb") as file:
        start = file.read(4)
    if not start or (start == b"PK\x03\x04" and not zipfile.is_zipfile(path)):
        raise InputError(_truncated(path))


def _truncated(path: Path) -> str:
    return (
        f"The checkpoint `{path}` is truncated ({path.stat().st_size:,} bytes): it was not written "
        f"or copied to its end, so copy it again or use another one."
    )


def _not_a_checkpoint(path: Path) -> str:
    return (
        f"`{path}` is not a fairseq checkpoint, or it is damaged; give a file written by "
        f"fairseq-train, which holds its parameters under the key `model`."
    )


def _as_sentence(error: Exception) -> str:
    """The message of an exception on one line; an `OSError` without its error number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"`{error.filename}`: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
