"""What must be installed, checked before anything that would fail without saying why."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from sut_fairseq.errors import InputError

OLDEST_TORCH = (2, 6)


def check_requirements() -> None:
    """Refuse a torch that is too old, and two distributions of fairseq in one place.

    Raises:
        InputError: with what is installed and what to do.
    """
    torch = _installed("torch")
    if torch is not None and _numbers(torch) < OLDEST_TORCH:
        raise InputError(
            f"torch {torch} is too old: 2.6 or newer is needed, install it in a fresh environment."
        )
    if _installed("fairseq") and _installed("fairseq-fixed"):
        raise InputError(
            "both `fairseq` and `fairseq-fixed` are installed and overwrite each other's files: "
            "uninstall both, then install sut_fairseq again."
        )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2])
