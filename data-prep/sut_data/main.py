"""`sut-prepare`: prepare a data set as a folder that fairseq-train reads."""

from __future__ import annotations

import ast
import difflib
import importlib
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from sut_data.command_line import Parser, run_command
from sut_data.errors import InputError
from sut_data.interrupts import end_when_interrupted
from sut_data.tables import table

PROGRAM = "sut-prepare"
ALSO = "also"  # the one command that is not a data set
SETS = Path(__file__).with_name("sets")
DOOR = ".sh"  # `data-prep/scan.sh` passes its own name, which its messages show


def set_files() -> dict[str, Path]:
    """Return the file of each data set by name: a module of `sets`, or a package's `__init__`."""
    modules = {path.stem: path for path in SETS.glob("*.py") if path.stem != "__init__"}
    folders = {path.parent.name: path for path in SETS.glob("*/__init__.py")}
    return dict(sorted({**modules, **folders}.items()))


def summary(file: Path) -> str:
    """Return the first line of a module's docstring, without importing the module."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def listing() -> str:
    """Return the data sets with their summaries, one per line."""
    rows = [(name, summary(file)) for name, file in set_files().items()]
    return textwrap.indent(table(rows, "<"), "  ")


def find_module(name: str) -> str:
    """Return the module of a data set, or of the command `also`.

    Raises:
        InputError: if there is none of that name; the message suggests the nearest one.
    """
    if name == ALSO:
        return "sut_data.also"
    files = set_files()
    if name in files:
        return f"sut_data.sets.{name}"
    near = difflib.get_close_matches(name, [*files, ALSO], n=1, cutoff=0.0)[0]
    raise InputError(
        f"there is no data set `{name}`; did you mean `{near}`? `{PROGRAM} --help` lists all."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the data set that the first argument names; returns the exit code."""
    end_when_interrupted()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0].startswith("-"):
        make_parser().parse_args(words)
        print(make_parser().format_help(), end="")
        return 0
    name, rest = words[0].removesuffix(DOOR), words[1:]
    program = words[0] if words[0].endswith(DOOR) else f"{PROGRAM} {name}"

    def body() -> None:
        signal.signal(signal.SIGTERM, _leave)
        module = importlib.import_module(find_module(name))
        module.main(program, rest)

    known = name == ALSO or name in set_files()
    return run_command(program if known else PROGRAM, body)


def _leave(*_: object) -> None:
    """Let SIGTERM clean up as Ctrl-C does; a second one does not interrupt the cleanup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def make_parser() -> Parser:
    """Return the command line without a data set, which offers only help."""
    parser = Parser(
        PROGRAM,
        "Prepare a data set as a folder that fairseq-train reads.\n\ndata sets:\n" + listing(),
        textwrap.dedent(
            f"""\
            `{PROGRAM} NAME --help` shows the options of one. In a checkout of the repository,
            `bash data-prep/NAME.sh ...` is the same command.

            `{PROGRAM} {ALSO} FOLDER NAME SRC TGT` adds an evaluation set to a prepared folder."""
        ),
        usage="%(prog)s NAME [options]",
        examples=[
            f"{PROGRAM} scan --split length --out data-bin/scan-length",
            f"{PROGRAM} multi30k --out data-bin/multi30k",
        ],
    )
    return parser
