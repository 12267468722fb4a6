"""Your own parallel text, two aligned files for each set: words, symbols, BPE or sentencepiece.

The resulting folder holds what fairseq reads (dict.src.txt, train.src-tgt.src.bin, ...), the
sentences themselves and the columns under text/, how they were made (tokenization.json and the
subwords, where they are not just words), the log, and a stamp (see `folders.prepared`): with equal
inputs and options a second run only checks them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sut_data.command_line import Parser, whole_number
from sut_data.errors import InputError
from sut_data.folders import measuring
from sut_data.folders.binarise import binarised_symbols
from sut_data.folders.choosing import LARGEST_WITHOUT_GPU, Plan, choose
from sut_data.folders.making import check_fairseq, make_folder
from sut_data.folders.prepared import hidden_folder
from sut_data.folders.report import report
from sut_data.folders.training import (
    DEFAULT_TASK,
    experiment_command,
    gpus_here,
    in_lines,
    plan_for,
    training_words,
)
from sut_data.kit.preparation import typed
from sut_data.text.further import add_sets, read_columns
from sut_data.text.pairs import SIDES, SPLITS, Inputs, check_files, thin
from sut_data.text.subwords import BPE_WORDS, SENTENCEPIECE_SENTENCES
from sut_data.text.tokenization import TextSide, has_moses_rules
from sut_data.text.treatment import Counts, Treatment
from sut_data.waiting import Stopwatch

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
            f"{typed(program)} --train train.de train.en --valid valid.de valid.en \\",
            "    --test test.de test.en --moses de en --bpe 8000 --joined --out data-bin/mine",
            f"{typed(program)} --train train.q train.a --valid valid.q valid.a \\",
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
        "--plan", action="store_true",
        help="also train for a few updates, and say how long all of it will take on this machine",
    )  # fmt: skip
    command.add_argument(
        "--arch", metavar="NAME",
        help="its architecture (default: as the number of pairs suggests)",
    )  # fmt: skip
    command.add_argument(
        "--task", default=DEFAULT_TASK, metavar="NAME", help=f"its task (default: {DEFAULT_TASK})"
    )
    return parser


def read_inputs(args: argparse.Namespace) -> Inputs:
    """Collect the files of a command line.

    Raises:
        InputError: if a name given to --also or --column cannot be used, or is used twice.
    """
    pairs = {split: (getattr(args, split)[0], getattr(args, split)[1]) for split in SPLITS}
    pairs = add_sets(pairs, args.also, "--also")
    return Inputs(pairs, read_columns(args.column, pairs))


def read_treatment(args: argparse.Namespace) -> Treatment:
    """Collect the options for natural text.

    Raises:
        InputError: if one is out of its range or they do not fit together.
    """
    for option in ("bpe", "sentencepiece", "max_length", "max_ratio"):
        value = getattr(args, option)
        if value is not None and not value >= 1:  # also true for a ratio of NaN
            name = "--" + option.replace("_", "-")
            raise InputError(f"{name} must be at least 1, but is {value} instead.")
    for option in ("bpe", "sentencepiece"):
        value = getattr(args, option)
        if value is not None and value >= 2**31:  # the greatest number that sentencepiece reads
            raise InputError(f"--{option} must be at most {2**31 - 1}, but is {value} instead.")
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


def tell_unknown_languages(program: str, languages: Iterable[str]) -> None:
    """Name the languages that Moses has no rules for: one may be a typing error."""
    for language in dict.fromkeys(languages):
        if not has_moses_rules(language):
            print(
                f"{program}: Moses has no rules for `{language}`, so those for English apply.",
                file=sys.stderr,
            )


def main(program: str, argv: Sequence[str]) -> None:
    """Check, reuse or build, and report."""
    args = make_parser(program).parse_args(argv)
    inputs, treatment = read_inputs(args), read_treatment(args)
    tell_unknown_languages(program, args.moses or ())
    out: Path = args.out.resolve()
    check_fairseq()
    watch = Stopwatch()
    check_files(inputs)
    if args.limit is None:
        stamp = make_folder(out, inputs, treatment, {}, watch)
    else:
        with hidden_folder(out, "text") as folder:
            fewer = thin(inputs, treatment.cleans, args.limit, folder)
            stamp = make_folder(out, fewer, treatment, {"limited": True}, watch)
    counts = {split: Counts(*row) for split, row in stamp["counts"].items()}
    report(out, counts, _REMEDY if treatment.subwords == "words" else "")
    print_training(args, out, counts)


def print_training(args: argparse.Namespace, out: Path, counts: dict[str, Counts]) -> None:
    """Print a training that suits the folder, and with --plan how long it takes.

    Raises:
        InputError: if the training does not run.
    """
    symbols = max(binarised_symbols(out / f"train.src-tgt.{side}.bin") for side in SIDES)
    plan = plan_for(counts, symbols, gpus_here(), args.task)
    words = training_words(out, counts, plan, joined=args.joined, arch=args.arch, task=args.task)
    print(describe(plan, counts["train"].pairs))
    print("Train on it with:\n  " + in_lines(words))
    if args.arch is None and args.task == DEFAULT_TASK:
        print("or, with scores and records, as an experiment:")
        print("  " + experiment_command(out, counts, plan, joined=args.joined))
    if args.plan:
        sys.stdout.flush()
        command = [word for line in words for word in line]
        print(measuring.sentence(measuring.measure(command), plan))


def describe(plan: Plan, pairs: int) -> str:
    """Describe the training that was chosen for this number of pairs."""
    passes = f"{plan.passes:,.0f}" if plan.passes >= 10 else f"{plan.passes:.1f}"
    text = (
        f"training for {pairs:,} pairs: size {plan.size.name}, {plan.updates:,} updates of "
        f"{plan.symbols:,} symbols, {passes} epochs"
    )
    if plan.gpus == 0 and plan.size.name == LARGEST_WITHOUT_GPU:
        suited = choose(pairs, 1, 1, gpus=1).size.name
        if suited != plan.size.name:
            text += f"\n(no GPU was found; with one, size {suited} suits so many pairs)"
    usual, _ = plan.size.share(plan.gpus)
    if plan.tokens > usual:
        text += (
            f"\n(batches of {plan.tokens:,} symbols instead of {usual:,}, since one must hold the "
            "longest sentence; --max-length drops longer training pairs)"
        )
    return text
