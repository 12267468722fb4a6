"""Your own parallel text, two aligned files for each set: words, symbols, BPE or sentencepiece.

The resulting folder holds what fairseq reads (dict.src.txt, train.src-tgt.src.bin, ...), the
sentences themselves and the columns under text/, how they were made (tokenization.json and the
subwords, where they are not just words), the log, and a stamp (see `folders.prepared`): with equal
inputs and options a second run only reads the stamp.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from sut_data.command_line import Parser, whole_number
from sut_data.errors import InputError
from sut_data.folders.making import check_fairseq, make_folder
from sut_data.folders.prepared import hidden_folder
from sut_data.folders.report import DEFAULT_TASK, report, training_command
from sut_data.text.pairs import SIDES, SPLITS, Inputs, check_files, thin
from sut_data.text.subwords import BPE_WORDS, SENTENCEPIECE_SENTENCES
from sut_data.text.tokenization import TextSide
from sut_data.text.treatment import Counts, Treatment

_REMEDY = (
    "         Split words at brackets and other symbols with --split-symbols (formal languages),\n"
    "         or into subwords with --bpe N (natural languages)."
)


def make_parser(program: str) -> Parser:
    """Return the command line of `parallel_text`."""
    parser = Parser(
        program,
        "Make a folder that fairseq-train reads from parallel text in UTF-8, plain or .gz. Line N "
        "of a source file belongs to line N of its target file. By default words are what stands "
        "between spaces, and a blank line is an error.",
        "With any option that changes the text, training pairs with a blank side are dropped; "
        "every drop is counted and reported. The folder keeps how its text was made (subwords.*, "
        "tokenization.json) and the raw text of the evaluation sets (text/*.raw.*). BPE is learnt "
        "on the "
        f"{BPE_WORDS:,} most frequent words, sentencepiece on at most "
        f"{SENTENCEPIECE_SENTENCES:,} lines, evenly spaced.\n\n"
        "Nothing appears at --out until everything is done and counted. A second run with the same "
        "inputs and options reuses the folder; anything else rebuilds it.",
        examples=[
            f"{program} --train train.de train.en --valid valid.de valid.en \\",
            "    --test test.de test.en --moses de en --bpe 8000 --joined --out data-bin/mine",
            f"{program} --train train.q train.a --valid valid.q valid.a \\",
            "    --test test.q test.a --split-symbols --out data-bin/questions",
        ],
    )
    for split in SPLITS:
        parser.add_argument(
            f"--{split}", nargs=2, type=Path, required=True, metavar=("SRC", "TGT"),
            help=f"source and target file of the {split} split",
        )  # fmt: skip
    parser.add_argument(
        "--also", nargs=3, action="append", default=[], metavar=("NAME", "SRC", "TGT"),
        help="an additional evaluation set, for `fairseq-generate --gen-subset NAME`; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--column", nargs=3, action="append", default=[], metavar=("SPLIT", "NAME", "FILE"),
        help="a file with one value for each pair of SPLIT, to report scores by group; repeatable",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--limit", type=whole_number, metavar="N",
        help="for a quick look, N pairs of each set, evenly spaced",
    )  # fmt: skip
    parser.add_argument(
        "--joined", action="store_true",
        help="one vocabulary, and one set of subwords, for both languages instead of two",
    )  # fmt: skip
    natural = parser.add_argument_group("how text becomes symbols")
    kind = natural.add_mutually_exclusive_group()
    kind.add_argument("--words", action="store_true", help="words between spaces (default)")
    kind.add_argument(
        "--split-symbols", action="store_true",
        help="formal languages: split words at brackets, commas and all other symbols, so that "
        "f(g(x)) has 7 symbols instead of one; sut-translate puts them together again",
    )  # fmt: skip
    kind.add_argument("--bpe", type=int, metavar="N", help="byte pair encoding of N merges")
    kind.add_argument(
        "--sentencepiece", type=int, metavar="N",
        help="sentencepiece (unigram) with a vocabulary of N",
    )  # fmt: skip
    natural.add_argument(
        "--moses", nargs=2, metavar=("SRC", "TGT"),
        help="normalise and tokenise raw text as Moses does; languages such as en de",
    )  # fmt: skip
    natural.add_argument(
        "--tokenized", action="store_true",
        help="the text is already tokenised as Moses does; --moses says how to undo it",
    )  # fmt: skip
    natural.add_argument(
        "--max-length", type=int, metavar="N",
        help="drop training pairs with more than N symbols on one side",
    )  # fmt: skip
    natural.add_argument(
        "--max-ratio", type=float, metavar="R",
        help="drop training pairs with one side more than R times as long as the other",
    )  # fmt: skip
    command = parser.add_argument_group("the training command printed at the end")
    command.add_argument(
        "--arch", default="sut_base", metavar="NAME", help="its architecture (default: sut_base)"
    )
    command.add_argument(
        "--task", default=DEFAULT_TASK, metavar="NAME", help=f"its task (default: {DEFAULT_TASK})"
    )
    return parser


def read_inputs(args: argparse.Namespace) -> Inputs:
    """Collect the files of a command line.

    Raises:
        InputError: if a name given to --also or --column cannot be used, or is used twice.
    """
    pairs = {split: tuple(getattr(args, split)) for split in SPLITS}
    for name, src, tgt in args.also:
        check_name("--also", name)
        # fairseq adds `train1` to the training data, and refuses to train beside a `valid1`.
        if name.startswith(("train", "valid")):
            raise InputError(
                f"--also {name}: fairseq takes sets whose names begin with train or valid for "
                "parts of those splits; choose another name."
            )
        if name in pairs:
            raise InputError(f"--also {name}: there is a set of that name; choose another one.")
        pairs[name] = (Path(src), Path(tgt))
    columns: dict[tuple[str, str], Path] = {}
    for split, name, path in args.column:
        check_name("--column", name)
        if split not in pairs:
            raise InputError(
                f"--column {split}: there is no such set; those given are {', '.join(pairs)}."
            )
        if name in SIDES or (split, name) in columns:
            raise InputError(
                f"--column {split} {name}: that set has a {name} already; choose another name."
            )
        columns[split, name] = Path(path)
    return Inputs(pairs, columns)


def read_treatment(args: argparse.Namespace) -> Treatment:
    """Collect the options for natural text.

    Raises:
        InputError: if one is out of its range or they do not fit together.
    """
    for option in ("bpe", "sentencepiece", "max_length", "max_ratio"):
        value = getattr(args, option)
        if value is not None and not value >= 1:  # true for a ratio that is no number too
            name = "--" + option.replace("_", "-")
            raise InputError(f"{name} must be at least 1, but is {value} instead.")
    if args.tokenized and not args.moses:
        raise InputError(
            "--tokenized needs --moses SRC TGT: the languages by whose rules it can be undone."
        )
    for language in args.moses or ():
        try:
            TextSide(language)
        except InputError as error:
            raise InputError(f"--moses: {error}") from error
    if args.split_symbols and args.moses:
        raise InputError("--split-symbols is for formal languages: leave --moses out.")
    chosen = {
        "bpe": args.bpe,
        "sentencepiece": args.sentencepiece,
        "symbols": args.split_symbols,
    }
    return Treatment(
        joined=args.joined,
        subwords=next((kind for kind, given in chosen.items() if given), "words"),
        size=args.bpe or args.sentencepiece or 0,
        languages=tuple(args.moses) if args.moses else (None, None),
        tokenized=args.tokenized,
        max_length=args.max_length,
        max_ratio=args.max_ratio,
    )


def check_name(option: str, name: str) -> None:
    """Refuse a name that could not be part of a file's name, or that fairseq would cut.

    Raises:
        InputError: saying what a name may hold.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise InputError(f"{option} `{name}`: a name may hold letters, digits, _ and - only.")


def main(program: str, argv: Sequence[str]) -> None:
    """Check, reuse or build, and report."""
    args = make_parser(program).parse_args(argv)
    inputs, treatment = read_inputs(args), read_treatment(args)
    out: Path = args.out.resolve()
    check_fairseq()
    check_files(inputs)
    if args.limit is None:
        stamp = make_folder(out, inputs, treatment, {})
    else:
        with hidden_folder(out, "text") as folder:
            fewer = thin(inputs, treatment.cleans, args.limit, folder)
            stamp = make_folder(out, fewer, treatment, {"limited": True})
    counts = {split: Counts(*row) for split, row in stamp["counts"].items()}
    report(out, counts, _REMEDY if treatment.subwords == "words" else "")
    command = training_command(out, counts, args.joined, args.arch, args.task)
    print("Train on it with:\n  " + command)
