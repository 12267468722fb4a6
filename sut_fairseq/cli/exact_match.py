"""`sut-exact-match`: count the sentences that fairseq-generate got entirely right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sut_data.command_line import Parser, refuse, whole_number
from sut_data.text.tokenization import load_direction
from sut_fairseq.cli._command import add_languages, print_json, run_command
from sut_fairseq.cli._generated import (
    count_sentences,
    find_languages,
    first_difference,
    read_generated,
    read_lines,
)
from sut_fairseq.errors import InputError


def make_parser() -> Parser:
    """Return the command line."""
    parser = Parser(
        "sut-exact-match",
        description="Share of sentences that fairseq-generate got exactly right. A missing "
        "sentence is an error, never a better score.",
        examples=[
            "sut-exact-match generated.txt --data data-bin/scan",
            "sut-exact-match generated.txt --expected 4182 --json",
        ],
    )
    parser.add_argument(
        "generated", metavar="GENERATED", help="standard output of fairseq-generate, in a file"
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument(
        "--data",
        metavar="DATA-BIN",
        help="folder that was translated; its index says how many sentences there are",
    )
    size.add_argument(
        "--expected", type=whole_number, metavar="N", help="number of sentences, instead of --data"
    )
    parser.add_argument(
        "--gen-subset",
        metavar="SPLIT",
        help="set that was translated (default: test)",
    )
    add_languages(parser, "from the file names")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print exact_match (in per cent), correct, scored and expected as JSON",
    )
    return parser


def _main(arguments: argparse.Namespace) -> None:
    if arguments.expected:
        refuse(arguments, ("gen_subset", "source_lang", "target_lang"), "--expected is given")
    expected = arguments.expected or count_sentences(
        arguments.data,
        arguments.gen_subset or "test",
        arguments.source_lang,
        arguments.target_lang,
    )
    pairs = read_generated(arguments.generated, expected)
    if arguments.data:
        _check_references([reference for reference, _ in pairs], arguments)
    correct = sum(reference == hypothesis for reference, hypothesis in pairs)
    percent = 100 * correct / expected
    if arguments.json:
        counts = {"correct": correct, "scored": expected, "expected": expected}
        print_json({"exact_match": percent, **counts})
    else:
        print(f"exact match {percent:.2f} % ({correct} of {expected} sentences)")


def _check_references(references: Sequence[str], arguments: argparse.Namespace) -> None:
    """Refuse the output of another set of as many sentences, where the folder has their text.

    References count as those of the data if half of them are, in any form that options of
    fairseq-generate may have given them.
    """
    data, subset = Path(arguments.data), arguments.gen_subset or "test"
    source, target = find_languages(data, arguments.source_lang, arguments.target_lang)
    lines = read_lines(data / "text" / f"{subset}.{target}", len(references))
    if lines is None:
        return
    _, side = load_direction(data, str(source), str(target))
    forms: tuple[Callable[[str], str], ...] = (str, side.join, side.decode)
    for form in forms:  # the last one may need an extra that is not installed
        found = (first_difference([one], [form(line)]) for one, line in zip(references, lines))
        if 2 * sum(number is None for number in found) >= len(references):
            return
    raise InputError(
        f"the references in {arguments.generated} are not those of `{subset}` in {data}: name with "
        "--data and --gen-subset what was translated."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Score a generated file and print the result; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return run_command("sut-exact-match", lambda: _main(arguments))


if __name__ == "__main__":
    sys.exit(main())
