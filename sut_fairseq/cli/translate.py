"""`sut-translate`: raw text in, raw text out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import torch
from tqdm import tqdm

from sut_data.command_line import Parser, whole_number
from sut_data.text.tokenization import FILE as TOKENIZATION
from sut_fairseq.cli._command import run_command
from sut_fairseq.cli._model_files import export, find_model
from sut_fairseq.cli._translator import Search, Translator
from sut_fairseq.errors import check

LINES_OF_A_FILE = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return run_command("sut-translate", lambda: _main(arguments))
    except KeyboardInterrupt:
        return 130


def read_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Lines of text as they come, without their ends; what is not UTF-8 becomes lone surrogates."""
    for number, line in enumerate(stream):
        text = line.rstrip(b"\r\n").decode("utf-8", errors="surrogateescape")
        yield text.lstrip("\ufeff") if number == 0 else text


def _main(arguments: argparse.Namespace) -> None:
    check(arguments.max_len_a >= 0, "--max-len-a", "at least 0", arguments.max_len_a)
    files = find_model(
        arguments.model, arguments.data, arguments.source_lang, arguments.target_lang
    )
    if arguments.data and files.folder != Path(arguments.data):
        _note(f"the dictionaries are those beside {files.checkpoint}; --data is not needed.")
    if arguments.export:
        export(files, Path(arguments.export))
        print(f"wrote {arguments.export}; translate with `sut-translate {arguments.export}`")
        return
    translator = Translator(
        files,
        Search(
            beam=arguments.beam,
            lenpen=arguments.lenpen,
            max_len_a=arguments.max_len_a,
            max_len_b=arguments.max_len_b,
            max_tokens=arguments.max_tokens,
            batch_size=arguments.batch_size or 0,
        ),
        alpha_threshold=arguments.alpha_threshold,
        device=arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
    if not (files.folder / TOKENIZATION).exists():
        _note(
            f"{files.folder} has no {TOKENIZATION}: the words are those between spaces, as in "
            f"fairseq-interactive."
        )
    if arguments.input:
        with open(arguments.input, "rb") as stream:
            lines = tqdm(stream, desc="translating", unit="line", disable=None)
            _translate(translator, lines, arguments.buffer or LINES_OF_A_FILE, arguments.json)
        return
    stdin: BinaryIO = sys.stdin.buffer
    if sys.stdin.isatty():
        _note("type one sentence on each line; Ctrl-D ends.")
    _translate(translator, stdin, arguments.buffer or 1, arguments.json)


def _translate(translator: Translator, stream: Iterable[bytes], buffer: int, as_json: bool) -> None:
    """Print a translation for every line, `buffer` lines at a time."""
    lines = read_lines(stream)
    number = 0
    while block := list(islice(lines, buffer)):
        for translation in translator.translate(block):
            number += 1
            if translation.error is not None:
                _note(f"line {number}: {translation.error}")
            if as_json:
                record = translator.describe(translation)
                print(json.dumps(record, ensure_ascii=False), flush=True)
            else:
                print(translation.translation)
        sys.stdout.flush()


def _note(sentence: str) -> None:
    print(f"sut-translate: {sentence}", file=sys.stderr)


def _parser() -> Parser:
    parser = Parser(
        "sut-translate",
        description="Translate raw text, one sentence on each line, with a trained model: "
        "tokenise, segment into subwords, search, detokenise. Every line of input gives one line "
        "of output, an empty one where there is nothing to translate or the sentence is too long.",
        epilog="Dictionaries and tokenisation are read from beside the checkpoint, else from "
        "--data, else from the data folder of the training. --export makes one folder of all that.",
    )
    parser.add_argument(
        "model", metavar="CHECKPOINT", help="a checkpoint, or a folder with one (the best counts)"
    )
    parser.add_argument(
        "--data", metavar="DATA-BIN", help="data folder with the dictionaries and tokenisation"
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="LANG", help=f"{side} language (default: as in training)"
        )
    parser.add_argument(
        "--export",
        metavar="DIR",
        help="translate nothing, but write the checkpoint (without its optimizer state), its "
        "dictionaries and its tokenisation into a new folder, from which `sut-translate DIR` works",
    )
    text = parser.add_argument_group("text")
    text.add_argument("--input", metavar="FILE", help="text to translate (default: standard input)")
    text.add_argument(
        "--buffer",
        type=whole_number,
        metavar="N",
        help="read N lines before translating them together, which is faster (default: "
        f"{LINES_OF_A_FILE} of a file, 1 of standard input: each is answered at once)",
    )
    text.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object on each line: source, translation, score (log-probability to "
        "base 2 by length^lenpen), alpha_threshold, encoder_depth and decoder_depth (average steps "
        "run for each token), macs_teacher_forced (MACs of the model run on the sentence and its "
        "translation, attention products included; the search itself computes more)",
    )
    search = parser.add_argument_group("search")
    search.add_argument(
        "--beam", type=whole_number, default=Search.beam, metavar="N", help="(default: %(default)s)"
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
        help="greatest number of source tokens in a batch (default: %(default)s)",
    )
    search.add_argument(
        "--batch-size",
        type=whole_number,
        metavar="N",
        help="greatest number of sentences in a batch (default: as --max-tokens allows)",
    )
    search.add_argument(
        "--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default: cuda where there is one)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
