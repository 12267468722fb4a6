"""What all commands of the repository share: their parser, and how they end.

A command ends with 0 when all is well. What the user can cause is told in one sentence on standard
error: a wrong command line with status 2, a wrong input with the command's own status.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable
from typing import NoReturn

from sut_data.errors import InputError

BAD_COMMAND_LINE = 2

# What training does not need: the module that is imported, and the extra that installs it.
EXTRAS = {
    "matplotlib": "plots",
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
        usage: the line of usage; argparse's own where it is None.
    """

    def __init__(
        self, prog: str, description: str = "", epilog: str = "", usage: str | None = None
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            usage=usage,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )

    def error(self, message: str) -> NoReturn:
        """Print the message, point at `--help` and exit with status 2."""
        self.exit(BAD_COMMAND_LINE, f"{self.prog}: error: {message}; see `{self.prog} --help`.\n")


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs and leaves indented lines alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled: list[str] = []
        paragraph: list[str] = []
        for line in [*text.split("\n"), ""]:
            if line.strip() and not line.startswith(" "):
                paragraph.append(line)
                continue
            filled += textwrap.wrap(" ".join(paragraph), width)
            filled.append(line)
            paragraph = []
        return "\n".join(filled[:-1])


def whole_number(text: str) -> int:
    """Argument type of argparse: a whole number of at least 1, in ASCII digits.

    Raises:
        argparse.ArgumentTypeError: if it is none.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but is `{text}`")
    return int(text)


def run_command(name: str, body: Callable[[], None], *, bad_input: int = 2) -> int:
    """Run the body of a command and tell what the user can cause in one sentence.

    Args:
        name: the command's name, which starts the sentence.
        body: the work; it raises `InputError` or `OSError` for bad input.
        bad_input: the exit code for that.

    Returns:
        exit code: 0 when `body` finishes, `bad_input` when the input was bad or a library is
        missing, 130 after Ctrl-C. Any other exception is a defect of ours and keeps its traceback.
    """
    try:
        body()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, say) has left. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        _tell(name, "interrupted.")
        return 130
    except (InputError, OSError) as error:
        _tell(name, f"error: {_as_sentence(error)}")
        return bad_input
    except ModuleNotFoundError as error:
        if (error.name or "sut_").startswith("sut_"):
            raise
        _tell(name, f"error: {_missing(error)}")
        return bad_input
    return 0


def _missing(error: ModuleNotFoundError) -> str:
    """How to install what a failed import lacks, in a sentence."""
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


def _tell(name: str, sentence: str) -> None:
    print(f"{name}: {sentence}", file=sys.stderr)


def _as_sentence(error: Exception) -> str:
    """The message of an exception on one line; an `OSError` without its error number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"`{error.filename}`: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
