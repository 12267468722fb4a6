"""Checks what must be installed; needs only Python, so that scripts can run this very file.

Run as a program, it exits with 0 if all is well, with 1 and an error message if the installation
cannot work, and with 3 and no message if something is not installed yet.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

OLDEST_TORCH = (2, 6)

NOT_INSTALLED = 3


def unmet_requirement() -> str | None:
    """Why this installation cannot work, and what to do, in a sentence; None if it can.

    torch may be too old, or two distributions of fairseq may be installed at once.
    """
    torch = _installed("torch")
    if torch is not None and _numbers(torch) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return (
            f"torch {torch} is too old: {oldest} or newer is needed, install it in a fresh "
            "environment."
        )
    if _installed("fairseq") and _installed("fairseq-fixed"):
        return (
            "both `fairseq` and `fairseq-fixed` are installed and overwrite each other's files: "
            "uninstall both, then install sut_fairseq again."
        )
    return None


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2])


if __name__ == "__main__":
    if problem := unmet_requirement():
        sys.exit(f"error: {problem}")
    if not all(map(_installed, ("torch", "fairseq-fixed", "sut_fairseq"))):
        sys.exit(NOT_INSTALLED)
