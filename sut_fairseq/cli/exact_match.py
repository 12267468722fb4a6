"""`sut-exact-match`: count the sentences that fairseq-generate got entirely right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sut_data.command_line import Parser, refuse, whole_number
from sut_fairseq.cli._command import print_json, run_command
from sut_fairseq.cli._generated import count_sentences, read_generated


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
    parser.add_argument(
        "--source-lang", metavar="SRC", help="source language (default: from the file names)"
    )
    parser.add_argument(
        "--target-lang", metavar="TGT", help="target language (default: from the file names)"
    )
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
    correct = sum(reference == hypothesis for reference, hypothesis in pairs)
    percent = 100 * correct / expected
    if arguments.json:
        counts = {"correct": correct, "scored": expected, "expected": expected}
        print_json({"exact_match": percent, **counts})
    else:
        print(f"exact match {percent:.2f} % ({correct} of {expected} sentences)")


def main(argv: Sequence[str] | None = None) -> int:
    """Score a generated file and print the result; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    return run_command("sut-exact-match", lambda: _main(arguments))


if __name__ == "__main__":
    sys.exit(main())
