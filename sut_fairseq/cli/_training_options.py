"""Checks the options of trainings with fairseq's own parser, before anything is run or written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from sut_fairseq import register
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.commands import USER_DIR, Training
from sut_fairseq.experiments.typed import nearest

_SHOWN = 20  # choices; there are hundreds of architectures
_BAD_CHOICE = re.compile(r"argument ([^ /:]+)[^:]*: invalid choice: '(.*?)' \(choose from (.*)\)")
_BAD_VALUE = re.compile(r"argument ([^ /:]+)[^:]*: invalid (\S+) value: (.*)")
_NUMBERS = {"int": "whole number", "float": "number"}
_WHERE = "correct the options after --, or the experiment's settings"


def check_options(trainings: Sequence[Training]) -> None:
    """Refuse options that fairseq-train does not have, or values that it does not take.

    A training with a plugin of its own (`--user-dir`) is not checked, since that would run the
    plugin's code in this process.

    Raises:
        InputError: naming the option, and the one that may be meant.
    """
    register()
    for training in trainings:
        if not plugin_of([training]):
            _check(training.command()[1:])


def plugin_of(trainings: Sequence[Training]) -> list[str]:
    """`--user-dir` and the folder, if trainings have a plugin of their own; else nothing."""
    ours = str(USER_DIR)
    folders = {str(training.settings.get("user-dir", ours)) for training in trainings} - {ours}
    return [word for folder in sorted(folders) for word in ("--user-dir", folder)]


def _check(words: list[str]) -> None:
    from fairseq import options

    parser = options.get_training_parser()
    parser.error = _refuse  # argparse's own prints the whole usage and exits
    chosen, unknown = options.parse_args_and_arch(parser, words, parse_known=True)
    names = [word.partition("=")[0] for word in unknown if word.startswith("--")]
    if names:
        known = [flag for action in parser._actions for flag in action.option_strings]
        there = {"--arch": chosen.arch, "--task": chosen.task, "--criterion": chosen.criterion}
        given = ", ".join(f"{name} {value}" for name, value in there.items() if value)
        raise InputError(
            f"fairseq-train has no option {names[0]}{nearest(names[0], known)} with {given}: "
            f"{_WHERE}."
        )
    if unknown:
        raise InputError(
            f"{unknown[0]} belongs to no option of fairseq-train (a switch takes no value): "
            f"{_WHERE}."
        )


def _refuse(message: str) -> NoReturn:
    """What argparse complains about, as a sentence."""
    if match := _BAD_CHOICE.fullmatch(message):
        flag, value, listed = match.groups()
        choices = re.findall(r"[^\s,']+", listed)
        hint = nearest(value, choices)
        if not hint and len(choices) <= _SHOWN:
            hint = f" (there are {', '.join(choices)})"
        raise InputError(f"{flag} cannot be {value}{hint}: {_WHERE}.")
    if match := _BAD_VALUE.fullmatch(message):
        flag, kind, value = match.groups()
        needed = f"must be a {_NUMBERS[kind]}, not" if kind in _NUMBERS else "cannot be"
        raise InputError(f"{flag} {needed} {value}: {_WHERE}.")
    raise InputError(f"fairseq-train refuses its options ({message}): {_WHERE}.")
