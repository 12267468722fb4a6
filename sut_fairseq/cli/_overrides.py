"""The option `--model-overrides` of commands that run a trained model."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from sut_fairseq.errors import InputError


def parse_overrides(text: str) -> dict[str, Any]:
    """Read a dictionary as fairseq-generate takes it, for argparse.

    Raises:
        argparse.ArgumentTypeError: if it is none.
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
    """Refuse a key that a checkpoint's settings do not have, which fairseq would ignore.

    Args:
        overrides: values by option.
        state: fairseq's dictionary of a checkpoint.

    Raises:
        InputError: naming similar options.
    """
    # Those of older checkpoints are `args`, all in one.
    settings = state.get("args") or (state.get("cfg") or {}).get("model") or {}
    known = settings if isinstance(settings, dict) else vars(settings)
    for key in overrides:
        if key not in known:
            similar = ", ".join(get_close_matches(str(key), known, n=3, cutoff=0))
            raise InputError(
                f"--model-overrides: the model has no option `{key}`; similar ones are {similar}."
            )
