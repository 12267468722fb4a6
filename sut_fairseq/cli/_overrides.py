"""The option `--model-overrides` of commands that run a trained model."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from sut_fairseq.checkpoints.settings import EVALUATED, refuse_code, settings_of
from sut_fairseq.errors import InputError


def add_model_overrides(parser: argparse._ActionsContainer) -> None:
    """Add `--model-overrides`."""
    parser.add_argument(
        "--model-overrides",
        type=parse_overrides,
        default={},
        metavar="DICT",
        help="options of the model to replace, as in fairseq-generate: \"{'encoder_layers': 24}\"",
    )


def parse_overrides(text: str) -> dict[str, Any]:
    """Argparse type for a dictionary in the form that fairseq-generate takes.

    Raises:
        argparse.ArgumentTypeError: if the text is not a dictionary.
    """
    try:
        overrides = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        overrides = None
    if not isinstance(overrides, dict):
        raise argparse.ArgumentTypeError(
            f"must be a dictionary like {{'encoder_layers': 24}}, but is {text!r}"
        )
    return overrides


def check_overrides(overrides: dict[str, Any], state: Mapping[str, Any]) -> None:
    """Refuse keys that a checkpoint's settings do not have: fairseq would ignore them.

    Also refuse texts that fairseq would run as Python code.
    """
    known = settings_of(state, "model") or {}
    for key in overrides:
        if key not in known:
            similar = ", ".join(get_close_matches(str(key), known, n=3, cutoff=0))
            raise InputError(
                f"--model-overrides: the model has no option `{key}`; similar ones are {similar}."
            )
        _check_text(key, overrides[key], known[key])


def _check_text(key: str, value: Any, trained: Any) -> None:
    """Refuse a text that fairseq would `eval`: code, or any in place of another kind of value."""
    fits = key not in EVALUATED or not isinstance(value, str) or isinstance(trained, str)
    try:
        refuse_code("--model-overrides", {"cfg": {key: value}})
    except InputError:
        fits = False
    if not fits:
        raise InputError(
            f"--model-overrides: `{key}` is {trained!r:.60} in the checkpoint and cannot be "
            f"{value!r:.60}: fairseq would run that as Python code; give a value of the same kind."
        )
