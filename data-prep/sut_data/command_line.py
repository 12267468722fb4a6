"""What all commands of the repository share: their parser, and how they end.

A command exits with status 0 when all is well. An error that the user can cause, a wrong command
line or bad input, is reported in one sentence on standard error, with status 2.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import io
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TextIO

from sut_data.errors import InputError
from sut_data.interrupts import INTERRUPTED, interruptible

BAD_INPUT = 2
STOPPED = "interrupted."

_MOST = 2**63 - 1
_MOST_DIGITS = 18  # any number this short is below it

# Modules that training does not need, and the extra that installs each of them.
EXTRAS = {
    "matplotlib": "plots",
    "shtab": "completion",
    "sacremoses": "text",
    "sentencepiece": "text",
    "subword_nmt": "text",
}


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line and whose long options are never abbreviated.

    In description and epilog, lines that begin with a space stay as they are (lists, examples),
    and the lines between them are wrapped to the width of the terminal.

    Args:
        prog: name of the command.
        description, epilog: what `--help` says before and after the options.
        usage: the usage line; None means argparse's own.
        examples: command lines that `--help` ends with.
    """

    def __init__(
        self,
        prog: str,
        description: str = "",
        epilog: str = "",
        usage: str | None = None,
        examples: Sequence[str] = (),
    ) -> None:
        self.examples = tuple(examples)
        shown = "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else ""
        super().__init__(
            prog=prog,
            description=description,
            epilog="\n\n".join(filter(None, [epilog, shown])),
            usage=usage,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; the error for an unknown option suggests the nearest one of the same command."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            chosen = self._chosen(found)
            known = [name for name in chosen._option_string_actions if name.startswith("--")]
            word = unknown[0].partition("=")[0]
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            chosen.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def _chosen(self, found: argparse.Namespace) -> argparse.ArgumentParser:
        """The parser of the subcommand that was given; this parser where there are none."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen: argparse.ArgumentParser = action.choices[getattr(found, action.dest)]
                return chosen
        return self

    def error(self, message: str) -> NoReturn:
        """Print the message, point at `--help` and exit with status 2."""
        self.exit(BAD_INPUT, f"{self.prog}: error: {message}; see `{self.prog} --help`.\n")


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs, leaves indented lines alone, and never breaks an option at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        paragraph: list[str] = []
        for line in [*text.split("\n"), ""]:
            if line.strip() and not line.startswith(" "):
                paragraph.append(line)
                continue
            filled += textwrap.wrap(" ".join(paragraph), width, break_on_hyphens=False)
            filled.append(line)
            paragraph = []
        return "\n".join(filled[:-1])


def seed(text: str) -> int:
    """Argument type for argparse: a signed 64-bit integer, as torch accepts it.

    Raises:
        argparse.ArgumentTypeError: if it is not one.
    """
    try:
        number = int(text)
    except ValueError:
        number = _MOST + 1
    if not -_MOST <= number <= _MOST:
        requirement = f"must be a whole number between -{_MOST} and {_MOST}"
        raise argparse.ArgumentTypeError(f"{requirement}, but is `{text}`")
    return number


def whole_number(text: str) -> int:
    """Argument type for argparse: an integer of at least 1, with at most 18 ASCII digits.

    Raises:
        argparse.ArgumentTypeError: if it is not one.
    """
    if not text.isascii() or not text.strip("0") or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but is `{text}`")
    if len(text) > _MOST_DIGITS:
        requirement = f"must have at most {_MOST_DIGITS} digits"
        raise argparse.ArgumentTypeError(f"{requirement}, but has {len(text)}")
    return int(text)


def given(
    arguments: argparse.Namespace,
    names: Iterable[str],
    parser: argparse.ArgumentParser | None = None,
) -> list[str]:
    """Return the names of those options that were given.

    Args:
        arguments: what was parsed.
        names: of the options, with underscores.
        parser: knows their defaults; None means they are None, or False for switches.
    """

    def is_given(name: str) -> bool:
        value, usual = getattr(arguments, name), parser.get_default(name) if parser else None
        return value is not False and value != usual

    return [name for name in names if is_given(name)]


def flags(names: Iterable[str]) -> str:
    """Return options as they are typed: `--beam and --max-len`."""
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)


def leave_out(names: Iterable[str], reason: str, instead: str = "") -> NoReturn:
    """Refuse options: either they must be left out, or the option `instead`.

    Raises:
        InputError: `REASON: leave --beam and --max-len out.`
    """
    other = f", or {instead}" if instead else ""
    raise InputError(f"{reason}: leave {flags(names)} out{other}.")


def refuse(
    arguments: argparse.Namespace,
    names: Iterable[str],
    reason: str,
    *,
    instead: str = "",
    parser: argparse.ArgumentParser | None = None,
) -> None:
    """Refuse options that would change nothing.

    Args:
        arguments, names, parser: as for `given`.
        reason, instead: as for `leave_out`.
    """
    if found := given(arguments, names, parser):
        leave_out(found, reason, instead)


def run_command(name: str, body: Callable[[], None], *, interrupted: str = STOPPED) -> int:
    """Run the body of a command and report the user's errors in one sentence.

    Args:
        name: the command's name, which starts the sentence.
        body: the work; it raises `InputError` or `OSError` for bad input.
        interrupted: what to say after Ctrl-C.

    Returns:
        exit code: 0 when `body` finishes, 2 when the input was bad or a library is missing, 130
        after Ctrl-C. Any other exception is a bug and keeps its traceback.
    """
    _write_anything()
    try:
        with interruptible():
            body()
            _flush()
    except BrokenPipeError:
        forget_output()
    except KeyboardInterrupt as interruption:
        _forget(interruption)
        with suppress(BrokenPipeError):
            _tell(name, interrupted)
        try:
            _flush()
        except BrokenPipeError:
            forget_output()
        return INTERRUPTED
    except (InputError, OSError) as error:
        _tell(name, f"error: {_as_sentence(error)}")
        return BAD_INPUT
    except ModuleNotFoundError as error:
        if (error.name or "sut_").startswith("sut_"):
            raise
        _tell(name, f"error: {_missing(error)}")
        return BAD_INPUT
    return 0


def _write_anything() -> None:
    """Print characters that the locale's encoding lacks as escapes: `\\u2581`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    if sys.stdout is not None:  # None: it was closed before the command began
        sys.stdout.flush()


def _forget(interruption: KeyboardInterrupt) -> None:
    """Free objects that Ctrl-C left half-constructed, whose `__del__` may fail.

    Otherwise Python would print a traceback for each, after the line about the interruption.
    """
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        error: BaseException | None = interruption
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
        gc.collect()
    finally:
        sys.unraisablehook = before


def forget_output(output: TextIO | None = None) -> None:
    """Discard all further output, since its reader (`head`, say) has closed the pipe.

    Otherwise Python would complain again when it flushes at exit.

    Args:
        output: the stream; None means standard output.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), (output or sys.stdout).fileno())


def _missing(error: ModuleNotFoundError) -> str:
    """One sentence on how to install the module that could not be imported."""
    module = (error.name or "").partition(".")[0]
    if module in EXTRAS:
        return (
            f"this needs {module.replace('_', '-')}, which is not installed: "
            f"run `pip install 'sut_fairseq[{EXTRAS[module]}]'`."
        )
    return (
        f"{module} is not installed for {sys.executable}: run `pip install .` in the repository, "
        "or activate the environment that has it."
    )


def printable(text: str) -> str:
    """Escape unprintable characters of untrusted text: a terminal would obey some of them."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def _tell(name: str, sentence: str) -> None:
    print(f"{name}: {printable(sentence)}", file=sys.stderr)


def _as_sentence(error: Exception) -> str:
    """The message of an exception on one line; an `OSError` without its error number."""
    if isinstance(error, OSError) and error.strerror:
        # A full disk has no file name: writing fails, not opening.
        return f"`{error.filename}`: {error.strerror}." if error.filename else f"{error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
