"""The one error template: what was given, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable


def check(condition: bool, name: str, requirement: str, value: object) -> None:
    """Raise a `ValueError` unless the condition holds.

    Example: ``check(k <= 4, "top_k", "between 1 and `num_experts` (4)", 6)`` raises
    ``ValueError: `top_k` must be between 1 and `num_experts` (4), but is 6 instead.``
    """
    if not condition:
        raise ValueError(f"`{name}` must be {requirement}, but is {value} instead.")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise a `ValueError` unless the value is one of the choices."""
    choices = list(choices)
    check(value in choices, name, "one of " + ", ".join(map(str, choices)), value)
