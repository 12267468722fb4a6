"""The option `--model-overrides` of commands that run a trained model."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from sut_fairseq.errors import InputError


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

    Args:
        overrides: values by option.
        state: fairseq's checkpoint dictionary.

    Raises:
        InputError: naming similar options.
    """
    # Older checkpoints have all their settings in one namespace, `args`.
    settings = state.get("args") or (state.get("cfg") or {}).get("model") or {}
    known = settings if isinstance(settings, dict) else vars(settings)
    for key in overrides:
        if key not in known:
            similar = ", ".join(get_close_matches(str(key), known, n=3, cutoff=0))
            raise InputError(
                f"--model-overrides: the model has no option `{key}`; similar ones are {similar}."
            )
