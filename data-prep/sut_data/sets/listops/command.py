"""ListOps: generated as in the Long Range Arena, or from the files of Nangia and Bowman (2018).

A line of those files is `value TAB expression`, the expression with binary brackets, which are
dropped: `( ( ( [SM 6 ) 5 ) ] )` becomes `[SM 6 5 ]`. Every line that is read is evaluated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from sut_data.command_line import whole_number
from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders.raw_files import find
from sut_data.kit.examples import (
    Example,
    Parts,
    check_counts,
    make_parser,
    prepare,
    sizes,
    take_validation,
)
from sut_data.kit.preparation import refuse_options
from sut_data.sets.listops.expressions import Lengths, evaluate, generate
from sut_data.text.further import check_set_name
from sut_data.waiting import waiting

LRA_SIZES = {"train": 96_000, "valid": 2_000, "test": 2_000}
LRA_LENGTHS = Lengths(500, 2000)
ENOUGH_FOR_LABELS = 1000  # expressions; every value is that of at least 6 %
GENERATING = ("sizes", "min_length", "max_length", "seed", "processes")  # options
STANDARD_FILES = ("train_d20s", "test_d20s")
PUBLISHED_LINES = {"train": 90_000, "test": 10_000}  # of every file with this prefix


def generate_parts(args: argparse.Namespace) -> Parts:
    """Generate the parts that the options ask for; fewer examples with a limit.

    Raises:
        InputError: if the lengths make no sense, or there are too few such expressions.
    """
    from tqdm import tqdm

    lengths = Lengths(args.min_length, args.max_length)
    if lengths.shortest < 0 or lengths.longest < lengths.shortest + 2:
        raise InputError(
            f"--min-length is {lengths.shortest} and --max-length {lengths.longest}: expressions "
            "are longer than the one and shorter than the other, so give at least 0 and a number "
            "that is greater by 2 or more."
        )
    wanted = {part: min(size, args.limit or size) for part, size in zip(LRA_SIZES, args.sizes)}
    if args.limit is not None:
        wanted["train"] = min(args.sizes[0], max(args.limit, ENOUGH_FOR_LABELS))
    total = sum(wanted.values())
    stream = generate(total, args.seed, lengths, args.processes)
    with tqdm(total=total, desc="generating", disable=None, leave=False) as bar:
        # The training set comes last, so that its size does not change the other sets.
        parts: Parts = {"test": [], "valid": [], "train": []}
        for part, examples in parts.items():
            for example in islice(stream, wanted[part]):
                examples.append(example)
                bar.update()
    print(f"ListOps as in LRA, seed {args.seed}: {sizes(wanted)}.")
    return parts


def read_file(path: Path) -> list[Example]:
    """Read every line of a file of Nangia and Bowman.

    Raises:
        InputError: naming the first line that is not an expression with its value.
    """
    examples = []
    for number, line in enumerate(read_lines(path), start=1):
        label, _, bracketed = line.partition("\t")
        expression = " ".join(word for word in bracketed.split() if word not in ("(", ")"))
        try:
            value, depth = evaluate(expression)
        except ValueError as error:
            raise InputError(
                f"{path}, line {number}: expected `value TAB expression`, but {error}."
            ) from error
        if label.strip() != str(value):
            raise InputError(
                f"{path}, line {number}: the value is {value} and not `{label[:60]}`; "
                "the file is not the published one."
            )
        examples.append(Example(expression, str(value), (str(depth),)))
    return examples


def raw_files(args: argparse.Namespace) -> dict[str, Path]:
    """Return the files that the options name, the training file first, by name.

    Raises:
        InputError: if one is absent, is used twice, or has a name that a set cannot have.
    """
    names = [args.train_file or STANDARD_FILES[0], *(args.test_file or STANDARD_FILES[1:])]
    if len(set(names)) < len(names):
        raise InputError(f"{', '.join(names)}: each file can be used once, so name different ones.")
    parts = {"train", "valid", "test"}
    for name in names[2:]:
        check_set_name("--test-file", name, parts)
    return {name: find(args.raw, f"{name}.tsv") for name in names}


def read_parts(files: dict[str, Path], args: argparse.Namespace) -> Parts:
    """Read the files of `raw_files`, and take a validation set out of the training set.

    Raises:
        InputError: if a file is wrong.
    """
    parts: Parts = {}
    for part, name in zip(["train", "test", *list(files)[2:]], files):
        with waiting(f"reading {name}"):
            parts[part] = read_file(files[name])
        kind = name.partition("_")[0]
        published = {part: PUBLISHED_LINES[kind]} if kind in PUBLISHED_LINES else {}
        check_counts(f"ListOps {name}", {part: len(parts[part])}, published, args.limit)
    return take_validation(parts, args.valid_size)


def split_name(args: argparse.Namespace) -> str:
    """Return `lra` for expressions as published there, `generated` for others, or `nangia_bowman`.

    Any seed will do: LRA's own expressions were never published.
    """
    if args.raw is not None:
        return "nangia_bowman"
    lengths = Lengths(args.min_length, args.max_length)
    is_lra = (tuple(args.sizes), lengths) == (tuple(LRA_SIZES.values()), LRA_LENGTHS)
    return "lra" if is_lra else "generated"


def main(program: str, argv: Sequence[str]) -> None:
    """Generate or read the expressions and prepare them."""
    parser = make_parser(
        program,
        "Prepare ListOps for fairseq: expressions such as `[MAX 2 9 [MIN 4 7 ] 0 ]` as sources, "
        "their values as targets of one token. Without --raw the expressions are drawn as in the "
        "Long Range Arena. (For ListOps balanced by dependency depth: listops_dependency.)",
        "folder with files of Nangia and Bowman (train_d20s.tsv, test_d20s.tsv, ...; plain or "
        ".gz); without it expressions are generated",
        "As in the Long Range Arena, an argument is an operator with probability 0.25, operators "
        "have 2 to 10 arguments, and at most 9 operators are nested. All expressions differ. The "
        "same seed gives the same expressions on every machine, and the same test and validation "
        "sets for any size of the training set. Evaluation sets have the column `depth`: how many "
        "operators are nested.",
    )
    lra = parser.add_argument_group("generated expressions")
    lra.add_argument(
        "--sizes", type=whole_number, nargs=3, metavar=tuple(LRA_SIZES),
        default=[*LRA_SIZES.values()], help="examples of each part (default: 96000 2000 2000)",
    )  # fmt: skip
    lra.add_argument(
        "--min-length", type=int, default=LRA_LENGTHS.shortest, metavar="N",
        help="expressions have more words than this, brackets included (default: 500)",
    )  # fmt: skip
    lra.add_argument(
        "--max-length", type=int, default=LRA_LENGTHS.longest, metavar="N",
        help="expressions have fewer words than this (default: 2000)",
    )  # fmt: skip
    lra.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")
    lra.add_argument(
        "--processes",
        type=whole_number,
        metavar="N",
        help="processes that generate; the result does not depend on it (default: cores)",
    )
    raw = parser.add_argument_group("files of Nangia and Bowman")
    raw.add_argument(
        "--train-file", metavar="NAME", help=f"without .tsv (default: {STANDARD_FILES[0]})"
    )
    raw.add_argument(
        "--test-file", metavar="NAME", action="append",
        help=f"without .tsv (default: {STANDARD_FILES[1]}); repeatable: the first is `test`, "
        "others are additional sets with their own names",
    )  # fmt: skip
    raw.add_argument(
        "--valid-size", type=int, default=1000, metavar="N",
        help="examples held out of the training set for validation (default: 1000)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.raw is None:
        if args.train_file or args.test_file:
            parser.error("--train-file and --test-file need --raw")
        refuse_options(args, ["valid_size"], "without --raw: --sizes has the size of each part")
    else:
        refuse_options(args, GENERATING, "with --raw, which reads expressions and generates none")
    files = {} if args.raw is None else raw_files(args)

    def make_parts() -> Parts:
        return generate_parts(args) if args.raw is None else read_parts(files, args)

    prepare(
        args, files.values(), make_parts, ["depth"], name="listops", split=split_name(args),
        labels=True,
    )  # fmt: skip
