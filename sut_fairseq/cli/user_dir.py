"""`sut-user-dir`: print where the plugin is installed, for fairseq's `--user-dir`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sut_data.command_line import Parser, run_command


def user_dir() -> Path:
    """Absolute path of the installed `sut_fairseq` package folder."""
    return Path(__file__).resolve().parents[1]


def constraints() -> Path:
    """Absolute path of the version pins that the tests were run with, for `pip install -c`."""
    return user_dir() / "constraints.txt"


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-user-dir",
        description="Print the absolute path of the installed sut_fairseq package, for fairseq's "
        "--user-dir.",
        examples=[
            'sut-user-dir  # for: fairseq-train DATA --user-dir "$(sut-user-dir)" ...',
            "sut-user-dir --constraints  # for: pip install -c FILE ...",
        ],
    )
    parser.add_argument(
        "--constraints",
        action="store_true",
        help="print the path of the pinned versions instead, for pip install -c",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the package folder or the path of the pins; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return run_command(
        "sut-user-dir", lambda: print(constraints() if arguments.constraints else user_dir())
    )


if __name__ == "__main__":
    sys.exit(main())
