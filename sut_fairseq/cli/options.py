"""`sut-options`: show the options of an architecture, a criterion or a task, with defaults."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace

from sut_data.command_line import Parser
from sut_fairseq.analysis.options import Described, Group, describe, headings
from sut_fairseq.cli._command import add_user_dir, print_json, run_command
from sut_fairseq.errors import InputError

_PRESET = "*"
_WIDEST = 110  # characters in a line


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_command("sut-options", lambda: _main(argv))


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-options",
        "Show the options that fairseq-train takes with an architecture, a criterion or a task of "
        "this package or of a plugin, and their defaults. (`fairseq-train --help` cannot: it is "
        "printed before the architecture is known.) Without a name, list the names.",
        examples=["sut-options sut_base", "sut-options cross_entropy_with_auxiliary"],
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="what is given to --arch, --criterion or --task"
    )
    add_user_dir(parser)
    parser.add_argument(
        "--preset-only",
        action="store_true",
        help="only the defaults that the architecture sets, not those of its model",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _main(argv: Sequence[str] | None) -> None:
    arguments = make_parser().parse_args(argv)
    if arguments.name is None:
        if arguments.preset_only:
            raise InputError("--preset-only is for one architecture: name it, or leave it out.")
        _list(arguments)
        return
    described = describe(arguments.name)
    if arguments.preset_only:
        if described.what != "architecture":
            raise InputError(
                f"--preset-only is for architectures, but {arguments.name} is a "
                f"{described.what}: leave it out."
            )
        of_preset = [
            replace(group, options=tuple(one for one in group.options if one.preset))
            for group in described.groups
        ]
        described = replace(described, groups=tuple(one for one in of_preset if one.options))
    if arguments.json:
        print_json(asdict(described))
        return
    print(_heading(described))
    for group in described.groups:
        print("\n" + _text(group))


def _list(arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(headings())
        return
    for heading, found in headings().items():
        listed = textwrap.fill(" ".join(found), _width() - 2, break_on_hyphens=False)
        print(f"{heading}\n{textwrap.indent(listed, '  ')}\n")
    print("`sut-options NAME` shows the options of one.")


def _heading(described: Described) -> str:
    use = f"fairseq-train DATA --user-dir ... {described.flag} {described.name}"
    preset = any(one.preset for group in described.groups for one in group.options)
    note = f"\n{_PRESET} set by this architecture, not by the model `{described.model}`"
    return f"{use}\n{described.about}{note if preset else ''}"


def _text(group: Group) -> str:
    """A group as text: flag, default, help."""
    lines = [group.title]
    flags = [f"{one.flag} {one.value}".rstrip() for one in group.options]
    flag_width = max(map(len, flags))
    default_width = max(len(one.shown_default) for one in group.options)
    for flag, one in zip(flags, group.options):
        mark = _PRESET if one.preset else " "
        start = f"{mark} {flag:<{flag_width}}  {one.shown_default:>{default_width}}  "
        lines += textwrap.wrap(
            one.shown_help,
            _width(),
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_on_hyphens=False,
        ) or [start.rstrip()]
    return "\n".join(lines)


def _width() -> int:
    return max(60, min(_WIDEST, shutil.get_terminal_size().columns))


if __name__ == "__main__":
    sys.exit(main())
