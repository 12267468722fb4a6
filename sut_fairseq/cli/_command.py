"""What the console commands share: clear errors and JSON output, and how they load checkpoints."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from sut_data import command_line
from sut_fairseq.checkpoints.reading import load_checkpoint

__all__ = ["for_json", "load_checkpoint", "print_json", "run_command"]


_QUIET = ("fairseq", "sut_fairseq", "matplotlib")


def run_command(
    name: str, body: Callable[[], None], interrupted: str = command_line.STOPPED
) -> int:
    """Run the body of a console command and report bad input in one sentence.

    Informational lines of fairseq and matplotlib are left out meanwhile (importing fairseq alone
    sets the level to debugging); warnings and errors still appear.

    Args, Returns:
        as `sut_data.command_line.run_command`; the exit code is 2 when the input was bad.
    """
    loggers = [logging.getLogger(package) for package in _QUIET]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        return command_line.run_command(name, body, interrupted=interrupted)
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def print_json(document: Mapping[str, Any]) -> None:
    """Print `document` on standard output as indented JSON; see `for_json`."""
    print(json.dumps(for_json(document), indent=2, ensure_ascii=False, allow_nan=False))


def for_json(value: Any) -> Any:
    """The same with None for infinite numbers and NaN, which JSON cannot say."""
    if isinstance(value, Mapping):
        return {key: for_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
