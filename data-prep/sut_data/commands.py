"""`sut`: list the commands, run one, or complete their options in a shell."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from sut_data.command_line import Parser, run_command
from sut_data.errors import InputError
from sut_data.main import ALSO, set_files, summary
from sut_data.main import PROGRAM as PREPARE
from sut_data.tables import table

PROGRAM = "sut"
SHELLS = ("bash", "zsh", "tcsh")
_PACKAGES = ("sut_fairseq", "sut_data")
# Placeholders for files and folders in the help of our commands.
_FILES = ("FILE", "CHECKPOINT", "CKPT", "OUT", "GENERATED", "SRC", "TGT")
_FOLDERS = ("DIR", "FOLDER", "DATA-BIN", "RUN")


def commands() -> dict[str, EntryPoint]:
    """Return the console commands that are installed, by name."""
    found = {
        one.name: one
        for one in entry_points(group="console_scripts")
        if one.module.partition(".")[0] in _PACKAGES and one.name != PROGRAM
    }
    return dict(sorted(found.items()))


def about(command: EntryPoint) -> str:
    """Return what a command is for: the first line of its module's docstring.

    Nothing is imported, since that would take seconds for torch and fairseq.
    """
    package, *parts = command.module.split(".")
    found = find_spec(package)
    places = found.submodule_search_locations if found is not None else None
    if not places:
        raise InputError(f"the package {package} is not installed: run `pip install .` again.")
    line = summary(Path(places[0], *parts).with_suffix(".py"))
    return line.removeprefix(f"`{command.name}`: ")


def make_parser() -> Parser:
    """Return the command line of `sut`."""
    parser = Parser(
        PROGRAM,
        "The commands of sut_fairseq:\n\n" + _listing(),
        "`sut NAME ...` is the same as `sut-NAME ...`, and `sut NAME --help` explains it.",
        usage="sut [NAME [options of the command]] [--completion SHELL]",
        examples=["sut translate --help", "sut --completion bash >> ~/.bashrc"],
    )
    parser.add_argument(
        "--completion",
        choices=SHELLS,
        help="print what makes this shell complete our commands when you press the tab key "
        "(needs the extra [completion])",
    )
    return parser


def _listing() -> str:
    rows = [(name, about(command)) for name, command in commands().items()]
    return textwrap.indent(table(rows, "<"), "  ")


def main(argv: Sequence[str] | None = None) -> int:
    """List the commands, run one, or print the completion of all; returns the exit code."""
    line = list(sys.argv[1:] if argv is None else argv)
    if line and not line[0].startswith("-"):
        return _run(line[0], line[1:])
    parser = make_parser()
    arguments = parser.parse_args(line)
    if arguments.completion is None:
        print(parser.format_help(), end="")
        return 0
    return run_command(PROGRAM, lambda: print(completion(arguments.completion)))


def _run(name: str, line: list[str]) -> int:
    """Run the command `sut-NAME`."""
    command = commands().get(f"{PROGRAM}-{name.removeprefix(f'{PROGRAM}-')}")
    if command is None:
        print(f"{PROGRAM}: error: there is no command `{name}`; `{PROGRAM}` lists them all.",
              file=sys.stderr)  # fmt: skip
        return 2
    sys.argv = [command.name, *line]
    status: int = command.load()()
    return status


def completion(shell: str) -> str:
    """Return a script that completes the options of all commands.

    Args:
        shell: one of `SHELLS`.
    """
    import shtab

    scripts = [shtab.complete(_with_names(make_parser()), shell)]
    for command in commands().values():
        parser = importlib.import_module(command.module).make_parser()
        _mark_paths(parser)
        scripts.append(shtab.complete(parser, shell))
    return "\n".join(scripts)


def _with_names(parser: Parser) -> Parser:
    """Add the command's name as an argument; `main` reads it without the parser."""
    names = [name.removeprefix(f"{PROGRAM}-") for name in commands()]
    parser.add_argument("name", nargs="?", choices=names)
    return parser


def _mark_paths(parser: argparse.ArgumentParser) -> None:
    """Tell shtab which arguments are files and which are folders."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _mark_paths(one)
            continue
        metavar = action.metavar[-1] if isinstance(action.metavar, tuple) else action.metavar
        if metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    if parser.prog == PREPARE:
        parser.add_argument("name", choices=[*set_files(), ALSO])


if __name__ == "__main__":
    sys.exit(main())
