"""`sut-prepare also`: add evaluation sets to a prepared folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sut_data.command_line import Parser
from sut_data.folders.adding import add, read_folder
from sut_data.folders.making import check_fairseq
from sut_data.folders.report import report
from sut_data.text.further import add_sets, read_columns
from sut_data.text.pairs import Inputs, check_files
from sut_data.waiting import Stopwatch


def make_parser(program: str) -> Parser:
    """Return the command line of `sut-prepare also`."""
    parser = Parser(
        program,
        "Add evaluation sets to a folder that `sut-prepare` made, of any data set: two aligned "
        "files each, in the form in which the folder's own text was given. They are treated with "
        "the folder's tokenisation, subwords and dictionaries, so that they score as if the folder "
        "had been prepared with them. Nothing else in it changes.",
        "The sets appear when all of them are done, or not at all. Evaluate one with "
        "`--gen-subset NAME` (fairseq-generate, sut-evaluate, sut-bleu) or `sut-experiment "
        "evaluate RUN --subset NAME`.",
        usage="%(prog)s FOLDER NAME SRC TGT [NAME SRC TGT ...] [--column NAME COLUMN FILE]",
        examples=[
            f"{program} data-bin/mine news news.de news.en",
            f"{program} data-bin/scan long long.src long.tgt --column long kind kinds.txt",
        ],
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a prepared folder")
    parser.add_argument(
        "sets", nargs="+", metavar="NAME SRC TGT",
        help="name of the new set, its source and its target file (plain or .gz); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--column", nargs=3, action="append", default=[], metavar=("NAME", "COLUMN", "FILE"),
        help="a file with one value for each pair of a new set, to report scores by group; "
        "repeatable",
    )  # fmt: skip
    return parser


def main(program: str, argv: Sequence[str]) -> None:
    """Add the sets and report their counts."""
    parser = make_parser(program)
    args = parser.parse_args(argv)
    if len(args.sets) % 3:
        parser.error("each set needs three words, NAME SRC TGT")
    watch = Stopwatch()
    out: Path = args.folder.resolve()
    check_fairseq()
    stamp, _ = read_folder(out)
    there = dict.fromkeys(stamp["counts"], (out, out))
    given = [args.sets[start : start + 3] for start in range(0, len(args.sets), 3)]
    pairs = add_sets(there, given, "the name")
    pairs = {name: pair for name, pair in pairs.items() if name not in there}
    inputs = Inputs(pairs, read_columns(args.column, pairs))
    check_files(inputs, "the set")
    counts = add(out, inputs)
    report(out, counts)
    names = ", ".join(f"`{name}`" for name in counts)
    example = next(iter(counts))
    print(f"{out} now has {names} ({watch}): evaluate with --gen-subset {example}.")
