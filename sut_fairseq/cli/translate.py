"""`sut-translate`: translate raw text with a trained model."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from sut_data.command_line import Parser, printable, refuse, whole_number
from sut_data.text.tokenization import FILE as TOKENIZATION
from sut_fairseq.cli._command import add_model, add_user_dir, for_json, run_command
from sut_fairseq.errors import InputError
from sut_fairseq.inference.export import export
from sut_fairseq.inference.files import find_model
from sut_fairseq.inference.model import Model
from sut_fairseq.inference.results import Search, Translation
from sut_fairseq.inference.text import LONGEST

_READ = 4 * LONGEST + 3  # bytes of a line: at least LONGEST characters, and a BOM or a line end
BLOCK = 1000  # lines that are translated together unless input is interactive
SHOWN = 5  # unknown words in the note about them


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    # --user-dir imports its plugin, or raises, while it is parsed.
    return run_command("sut-translate", lambda: _main(make_parser().parse_args(argv)))


def read_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of text as they come, without their ends; bytes not in UTF-8 become lone surrogates.

    A line that is too long to be translated is cut, but remains too long.
    """
    first = True
    while line := stream.readline(_READ):
        rest = line
        while len(rest) == _READ and not rest.endswith(b"\n"):
            rest = stream.readline(_READ)
        text = line.rstrip(b"\r\n").decode("utf-8", errors="surrogateescape")
        yield text.removeprefix("\ufeff") if first else text
        first = False


def _main(arguments: argparse.Namespace) -> None:
    search = Search(
        beam=arguments.beam,
        lenpen=arguments.lenpen,
        max_len_a=arguments.max_len_a,
        max_len_b=arguments.max_len_b,
        max_tokens=arguments.max_tokens,
        batch_size=arguments.batch_size or 0,
    )
    files = find_model(
        arguments.model, arguments.data, arguments.source_lang, arguments.target_lang
    )
    if arguments.export:
        _check_export(arguments)
        command = export(files, Path(arguments.export), "pt", option="--export")
        print(f"wrote {arguments.export}; translate with `{command}`")
        return
    model = Model(files, alpha_threshold=arguments.alpha_threshold, device=arguments.device)
    ask = partial(model.translate, **asdict(search), costs=arguments.json)
    if not (files.folder / TOKENIZATION).exists():
        _note(
            f"{files.folder} has no {TOKENIZATION}: the words are those between spaces, as in "
            f"fairseq-interactive."
        )
    if arguments.input:
        with open(arguments.input, "rb") as stream:
            _translate(ask, stream, arguments.buffer or BLOCK, arguments.json)
        return
    if sys.stdin is None:
        raise InputError("standard input is closed: name a file with --input.")
    typed = sys.stdin.isatty()
    if typed:
        _note("type one sentence on each line; Ctrl-D ends.")
    buffer = arguments.buffer or (1 if typed else BLOCK)
    _translate(ask, sys.stdin.buffer, buffer, arguments.json)


def _check_export(arguments: argparse.Namespace) -> None:
    """Refuse options of translation, because the export would not contain them."""
    names = (
        *("alpha_threshold", "beam", "lenpen", "max_len_a", "max_len_b", "max_tokens"),
        *("batch_size", "input", "buffer", "json", "device"),
    )
    refuse(arguments, names, "--export translates nothing", parser=make_parser())


def _translate(
    ask: Callable[[list[str]], list[Translation]], stream: BinaryIO, buffer: int, as_json: bool
) -> None:
    """Print a translation for every line, `buffer` lines at a time."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # UTF-8 like the input, whatever the locale.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    quiet = True if stream.isatty() else None  # None: quiet unless standard error is a terminal
    lines = iter(tqdm(read_lines(stream), desc="translating", unit="line", disable=quiet))
    unknown = _Unknown()
    number = 0
    while block := list(islice(lines, buffer)):
        for translation in ask(block):
            number += 1
            unknown.add(translation)
            if translation.error is not None:
                _note(f"line {number}: {translation.error}")
            if as_json:
                record = for_json(_record(translation))
                print(json.dumps(record, ensure_ascii=False), flush=True)
            else:
                print(translation.text)
        print(end="", flush=True)
    if unknown.words:
        _note(str(unknown))


def _record(translation: Translation) -> dict[str, Any]:
    """The facts about a translation, ready for JSON."""
    record = {
        "source": translation.source,
        "translation": translation.text,
        "score": translation.score,
        "alpha_threshold": translation.alpha_threshold,
        "encoder_depth": translation.depth.get("encoder"),
        "decoder_depth": translation.depth.get("decoder"),
        "macs_teacher_forced": translation.macs,
        "unknown_words": len(translation.unknown_words),
    }
    if translation.error is not None:
        record["error"] = translation.error
    return record


class _Unknown:
    """Counts the words that a model does not know."""

    def __init__(self) -> None:
        self.words = self.lines = self._all_words = self._all_lines = 0
        self._first: list[str] = []

    def add(self, translation: Translation) -> None:
        """Count the unknown words of a line."""
        self._all_lines += 1
        if translation.source_tokens is not None:
            self._all_words += len(translation.source_tokens) - 1
        self.words += len(translation.unknown_words)
        self.lines += bool(translation.unknown_words)
        for word in translation.unknown_words:
            if len(self._first) < SHOWN and word not in self._first:
                self._first.append(word)

    def __str__(self) -> str:
        words = ", ".join(
            f"`{word if len(word) <= 40 else word[:37] + '...'}`" for word in self._first
        )
        return (
            f"{self.words:,} of {self._all_words:,} source tokens, in {self.lines:,} of "
            f"{self._all_lines:,} lines, are unknown to the model; the first are {words}."
        )


def _note(sentence: str) -> None:
    print(f"sut-translate: {printable(sentence)}", file=sys.stderr)


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-translate",
        description="Translate raw text, one sentence per line, with a trained model: tokenise, "
        "segment into subwords, search, detokenise. Every line of input gives one line of output, "
        "an empty one where there is nothing to translate or the sentence is too long.",
        epilog="Dictionaries and tokenisation are read from --data or, without it, from beside "
        "the checkpoint, else from the data folder of the training. --export puts all into one "
        "folder.",
        examples=[
            "sut-translate runs/mine/checkpoints --input test.de",
            "sut-translate checkpoint_best.pt --alpha-threshold 0.8 --beam 5 --json",
        ],
    )
    add_model(parser)
    add_user_dir(parser)
    parser.add_argument(
        "--export",
        metavar="DIR",
        help="translate nothing, but do what `sut-export --format pt --out DIR` does",
    )
    text = parser.add_argument_group("text")
    text.add_argument("--input", metavar="FILE", help="text to translate (default: standard input)")
    text.add_argument(
        "--buffer",
        type=whole_number,
        metavar="N",
        help=f"read N lines before translating them together, which is faster (default: {BLOCK}, "
        "but 1 if the input is typed in a terminal, where each line is answered before the next is "
        "read; a program that waits for each answer needs --buffer 1 too)",
    )
    text.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object on each line: source, translation, score (log-probability to "
        "base 2 by length^lenpen), alpha_threshold, encoder_depth and decoder_depth (average steps "
        "run for each token), macs_teacher_forced (MACs of the model run on the sentence and its "
        "translation, attention products included; the search itself computes more); counting runs "
        "each distinct line of a block in a forward pass of its own, which on small models takes "
        "longer than translating",
    )
    search = parser.add_argument_group("search")
    search.add_argument(
        "--beam",
        type=whole_number,
        default=Search.beam,
        metavar="N",
        help="beam size (default: %(default)s)",
    )
    search.add_argument(
        "--length-penalty",
        "--lenpen",
        dest="lenpen",
        type=float,
        default=Search.lenpen,
        metavar="X",
        help="scores are divided by length^X (default: %(default)s)",
    )
    search.add_argument(
        "--max-len-a",
        type=float,
        default=Search.max_len_a,
        metavar="A",
        help="a translation has at most A * source length + B tokens (default: %(default)s)",
    )
    search.add_argument(
        "--max-len-b", type=whole_number, default=Search.max_len_b, metavar="B", help="see A "
        "(default: %(default)s)"
    )  # fmt: skip
    search.add_argument(
        "--alpha-threshold",
        type=float,
        metavar="A",
        help="halting threshold (default: that of training)",
    )
    search.add_argument(
        "--max-tokens",
        type=whole_number,
        default=Search.max_tokens,
        metavar="N",
        help="source tokens in a batch, at most (default: %(default)s)",
    )
    search.add_argument(
        "--batch-size",
        type=whole_number,
        metavar="N",
        help="sentences in a batch, at most (default: as --max-tokens allows)",
    )
    search.add_argument(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default: cuda where there is one)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
