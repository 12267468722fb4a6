"""What the preparation programs share: reading text, plain or gzipped, and reporting bad input.

Every program here ends in the same way: 0 when all is well, 1 with one sentence on standard error
when an input file is wrong, 2 with one sentence when the command line is.
"""

from __future__ import annotations

import argparse
import gzip
import signal
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn


class InputError(Exception):
    """Something the user gave is wrong; the message is the whole sentence they will read."""


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line and whose long options are never abbreviated."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Print the message, point at `--help` and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message}; see `{self.prog} --help`.\n")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line ends; a name in `.gz` is decompressed.

    A line ends in a line feed, with or without a carriage return before it. A carriage return
    elsewhere is part of the line: two files would no longer be aligned if it ended one.

    Raises:
        InputError: if the file cannot be opened, decompressed or decoded.
    """
    number = 0
    try:
        # utf-8-sig: a byte order mark would otherwise become part of the first word.
        if path.suffix == ".gz":
            stream = gzip.open(path, "rt", encoding="utf-8-sig", newline="\n")  # noqa: SIM115
        else:
            stream = open(path, encoding="utf-8-sig", newline="\n")  # noqa: SIM115
        with stream:
            for line in stream:
                yield line.rstrip("\r\n")
                number += 1
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (near line {number + 1}): convert it, "
            "for example with `iconv -t UTF-8`."
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            f"{path} ends in .gz but does not decompress ({error}): fetch or compress it again."
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, given without their ends, to a file."""
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def _leave(*_: object) -> None:
    """Let a polite kill clean up as Ctrl-C does; a second one does not interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def run(main: Callable[[], None], program: str) -> None:
    """Call `main` and turn what a user can cause into one sentence and a non-zero exit status."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        main()
    except InputError as error:
        sys.exit(f"{program}: error: {error}")
    except ModuleNotFoundError as error:
        sys.exit(
            f"{program}: error: {error.name} is not installed for {sys.executable}: run "
            "`pip install .` in the repository, or activate the environment that has it."
        )
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sys.exit(f"{program}: error: the system refused a file operation: {error.strerror}{where}.")
    except KeyboardInterrupt:
        print(f"{program}: interrupted; nothing was put in place.", file=sys.stderr)
        sys.exit(130)
