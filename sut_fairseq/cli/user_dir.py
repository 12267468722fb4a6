"""`sut-user-dir`: where the installed plugin lies, for fairseq's `--user-dir`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def user_dir() -> Path:
    """Absolute path of the installed `sut_fairseq` package folder."""
    return Path(__file__).resolve().parents[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the package folder; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="sut-user-dir",
        description="Print the absolute path of the installed sut_fairseq package, for use as "
        "fairseq-train DATA --user-dir $(sut-user-dir) ...",
    )
    parser.parse_args(argv)
    print(user_dir())
    return 0


if __name__ == "__main__":
    sys.exit(main())
