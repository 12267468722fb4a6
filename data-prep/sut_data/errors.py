"""Bad input: its exception, and the template of its messages."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, described in one sentence: what was given, what is allowed, how to fix it.

    Commands show the sentence without a traceback; a caller in Python catches a `ValueError`.
    """


def check(condition: bool, name: str, requirement: str, value: object) -> None:
    """Raise an `InputError` unless the condition holds.

    Example: ``check(k <= 4, "top_k", "between 1 and `num_experts` (4)", 6)`` raises
    ``InputError: `top_k` must be between 1 and `num_experts` (4), but is 6 instead.``
    """
    if not condition:
        raise InputError(f"`{name}` must be {requirement}, but is {value} instead.")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise an `InputError` unless the value is one of the choices."""
    choices = list(choices)
    check(value in choices, name, "one of " + ", ".join(map(str, choices)), value)
