"""Shared code of the console commands: clear errors, common options, JSON output."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from os.path import realpath  # unlike `Path.resolve`, it accepts circular links
from pathlib import Path
from typing import Any

from sut_data import command_line
from sut_fairseq import register
from sut_fairseq.errors import InputError

_QUIET = ("fairseq", "sut_fairseq", "matplotlib")


def run_command(
    name: str, body: Callable[[], None], interrupted: str = command_line.STOPPED
) -> int:
    """Run the body of a console command and report bad input in one sentence.

    Meanwhile, fairseq and matplotlib log warnings and errors only (importing fairseq alone sets
    the level to debugging).

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


class _ImportUserDir(argparse.Action):
    """Stores a folder, and imports it during parsing as fairseq's `--user-dir` does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if not Path(values).is_dir():
            raise InputError(f"--user-dir {values}: there is no such folder; check its path.")
        register()  # the plugin may add to it
        from fairseq.utils import import_user_module

        try:
            import_user_module(argparse.Namespace(user_dir=values))
        except InputError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"--user-dir {values} cannot be imported ({reason}).") from error
        setattr(namespace, self.dest, Path(values))


def add_user_dir(parser: argparse._ActionsContainer) -> None:
    """Add `--user-dir` for models that another plugin registers."""
    parser.add_argument(
        "--user-dir",
        action=_ImportUserDir,
        default=argparse.SUPPRESS,
        metavar="DIR",
        help="folder of another fairseq plugin, whose code is run, for architectures that it "
        "registers (this package needs no --user-dir here)",
    )


def number_up_to(most: int) -> Callable[[str], int]:
    """Argument type for argparse: a `whole_number` of at most `most`."""

    def read(text: str) -> int:
        number = command_line.whole_number(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, but is {number}")
        return number

    return read


def add_model(parser: argparse._ActionsContainer) -> None:
    """Add what `inference.files.find_model` is asked with."""
    parser.add_argument(
        "model", metavar="CHECKPOINT", help="a checkpoint, or a folder with one (the best counts)"
    )
    parser.add_argument(
        "--data", metavar="DATA-BIN", help="data folder with the dictionaries and tokenisation"
    )
    add_languages(parser)


def add_languages(parser: argparse._ActionsContainer, default: str = "as in training") -> None:
    """Add `--source-lang` and `--target-lang`; `default` says what they are where not given."""
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="LANG", help=f"{side} language (default: {default})"
        )


def check_apart(files: Mapping[str, str | Path | None]) -> None:
    """Refuse one file for several options: what one of them writes would replace the other.

    Args:
        files: those that are read or written, by option; folders, pipes and devices may be the
            same.

    Raises:
        InputError: naming two options.
    """
    options: dict[str, str] = {}
    for option, path in files.items():
        if path is None or (Path(path).exists() and not Path(path).is_file()):
            continue
        other = options.setdefault(realpath(path), option)
        if other != option:
            raise InputError(
                f"{other} and {option} both name {path}, and one would replace the other: give "
                "them different files."
            )


def each_of(runs: Sequence[Path], do: Callable[[Path], None], done: str) -> None:
    """Call `do` for the folder of each run; others are still processed if it refuses one.

    Raises:
        InputError: once all have been tried, if any was refused.
    """
    if len(runs) == 1:
        do(runs[0])
        return
    refused = 0
    for run in runs:
        try:
            do(run)
        except InputError as error:
            print(command_line.printable(str(error)), file=sys.stderr, flush=True)
            refused += 1
    if refused:
        raise InputError(f"{refused} of {len(runs)} runs could not be {done}, see above.")


def print_json(document: Mapping[str, Any]) -> None:
    """Print `document` on standard output as indented JSON; see `for_json`."""
    print(json.dumps(for_json(document), indent=2, ensure_ascii=False, allow_nan=False))


def for_json(value: Any) -> Any:
    """The same with None for infinite numbers and NaN, which JSON cannot represent."""
    if isinstance(value, Mapping):
        return {key: for_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
