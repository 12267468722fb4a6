"""Outcomes of checks, and how a check runs a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """The outcome of a check.

    Attributes:
        name: what was checked.
        found: what was found, in a few words.
        fix: what to do, in a sentence; empty if all is well.
    """

    name: str
    found: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.fix

    def __str__(self) -> str:
        """The line that is printed."""
        return f"{'ok' if self.ok else 'fix':<4}{self.name:<14}{self.fix or self.found}"


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `2.13.0+cpu` -> (2, 13, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def last_line(text: str) -> str:
    """The last line that is not blank, where Python's tracebacks state the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


@dataclass(frozen=True)
class Ran:
    """A program that has ended.

    Attributes:
        lines: of its standard output.
        problem: why it failed, in a few words; empty if it did not.
    """

    lines: list[str]
    problem: str = ""


def run(
    program: Path,
    arguments: Sequence[str] = (),
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a Python file in a process of its own, without its folder on the import path.

    Args:
        program: the file.
        arguments: its arguments.
        seconds: after which it is killed.
        environment: variables to set or to change.
    """
    command = [sys.executable, "-P", str(program), *arguments]
    own = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(
            command, env=own, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return Ran([], f"it did not end within {seconds:g} s")
    lines = done.stdout.splitlines()
    if done.returncode < 0:
        return Ran(lines, f"it was killed by signal {-done.returncode}")
    return Ran(lines, last_line(done.stderr) if done.returncode else "")
