"""The command `scan`: a split from the grammar, from published files, or from your own files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from sut_data.command_line import Parser
from sut_data.errors import InputError
from sut_data.folders.raw_files import find
from sut_data.kit.examples import Parts, check_counts, make_parser, prepare, take_validation
from sut_data.kit.preparation import refuse_options
from sut_data.sets.scan.files import ALL_TASKS, Published, overlap, read_pairs
from sut_data.sets.scan.grammar import all_pairs
from sut_data.sets.scan.splits import MCD_SIZES, OTHER_NAMES, PUBLISHED_SIZES, SPLITS, cut_off
from sut_data.waiting import waiting

ALL_PAIRS = 20_910

Source = tuple[str, list[Path], Callable[[], Parts]]  # name of the split, files, what reads them


def cut_off_source(raw: Path | None, longest: int, limit: int | None) -> Source:
    """All pairs divided at an output length: `train`, `iid` and `test`."""
    files = [] if raw is None else [find(raw, ALL_TASKS)]

    def make() -> Parts:
        with waiting("making SCAN"):
            pairs = read_pairs(files[0]) if files else all_pairs()
        name = f"SCAN cut-off {longest} ({'published files' if files else 'generated'})"
        check_counts(name, {"pairs": len(pairs)}, {"pairs": ALL_PAIRS}, limit)
        return cut_off(pairs, longest)

    return f"cutoff_{longest}", files, make


def split_source(raw: Path | None, split: str, limit: int | None) -> Source:
    """A split by name, generated or from files of `raw`: `train`, `test`, for MCD also `valid`."""
    published = None if raw is None else Published(raw, split)

    def make() -> Parts:
        with waiting("making SCAN"):
            parts = SPLITS[split]()._asdict() if published is None else published.read()
        found = {part: len(pairs) for part, pairs in parts.items()}
        name = f"SCAN {split} ({'generated' if published is None else 'published files'})"
        check_counts(name, found, {**PUBLISHED_SIZES, **MCD_SIZES}[split], limit)
        return parts

    return split, [] if published is None else published.files, make


def own_source(args: argparse.Namespace) -> Source:
    """The user's own files in SCAN's form, in any language: `train`, `test` and `valid`.

    Raises:
        InputError: if one is absent.
    """
    given = {"train": args.train, "test": args.test, "valid": args.valid}
    files = {part: path for part, path in given.items() if path is not None}
    for part, path in files.items():
        if not path.is_file():
            raise InputError(f"--{part} {path}: there is no such file; check its path.")

    def make() -> Parts:
        with waiting("reading the files"):
            parts = {part: read_pairs(path, any_language=True) for part, path in files.items()}
        counts = (f"{len(pairs):,} {part}" for part, pairs in parts.items())
        print(f"SCAN, files of your own: {', '.join(counts)}.")
        shared = overlap(parts)
        if shared:
            print(shared)
        return parts

    return "own", [*files.values()], make


def make_options(program: str) -> Parser:
    """Return the command line."""
    parser = make_parser(
        program,
        "Prepare SCAN for fairseq: commands (`jump twice`) and actions (`I_JUMP I_JUMP`). Without "
        "--raw the grammar generates the pairs, in seconds and without a download.",
        "read published files instead: tasks_train_<split>.txt and tasks_test_<split>.txt, "
        "tasks.txt for --cutoff, for mcd1 see below; plain or .gz, in DIR or one folder below",
        "The `simple` split was published as one random draw; the generated one is another draw "
        "of the same sizes (16,728 and 4,182). The other generated splits hold exactly the "
        "published pairs.\n"
        "\n"
        "No rule generates the splits mcd1, mcd2 and mcd3 (Keysers et al., 2020), so they need "
        "--raw, with either of\n"
        "  mcd1.json and tasks.txt\n"
        "      as published: indices (from scan-splits.tar.gz of the CFQ data set) of the lines of "
        "SCAN's\n"
        "      tasks.txt, counted from 0, in the lists trainIdxs, devIdxs and testIdxs\n"
        "  tasks_train_mcd1.txt, tasks_test_mcd1.txt and, if there is one, tasks_val_mcd1.txt\n"
        "      (or dev, or valid): the split itself, one pair per line\n"
        "\n"
        "--train and --test take any files with lines `IN: <command> OUT: <actions>`, with any "
        "words; pairs that train and test share are reported.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--split", choices=[*SPLITS, *MCD_SIZES, *OTHER_NAMES], default="simple", metavar="NAME",
        help=f"{', '.join([*SPLITS, *MCD_SIZES])}, or what papers call them: "
        f"{', '.join(OTHER_NAMES)} (default: simple)",
    )  # fmt: skip
    which.add_argument(
        "--cutoff", type=int, metavar="N",
        help="instead of a split, divide all 20,910 pairs by output length: training has outputs "
        "of at most N actions (the published study: 22 to 40) except for a tenth of them, the "
        "additional set `iid`; longer outputs are the test set",
    )  # fmt: skip
    which.add_argument("--train", type=Path, metavar="FILE", help="a training file of your own")
    parser.add_argument("--test", type=Path, metavar="FILE", help="the test file for --train")
    parser.add_argument(
        "--valid", type=Path, metavar="FILE",
        help="the validation file for --train (default: a part of the training set)",
    )  # fmt: skip
    parser.add_argument(
        "--valid-size", type=int, default=500, metavar="N",
        help="for splits without a validation set: pairs held out of the training set (default: "
        "500)",
    )  # fmt: skip
    return parser


def main(program: str, argv: Sequence[str]) -> None:
    """Make one split, take the validation set out of its training set, and prepare it."""
    parser = make_options(program)
    args = parser.parse_args(argv)
    split = OTHER_NAMES.get(args.split, args.split)
    if (args.train is None) != (args.test is None) or (args.valid and not args.train):
        parser.error("files of your own need both --train and --test")
    if args.train and args.raw:
        parser.error("--raw is for published files; --train and --test name files of your own")
    if args.valid is not None:
        refuse_options(args, ["valid_size"], "with --valid, which is all of the validation set")
    if split in MCD_SIZES and args.raw is None and args.cutoff is None and args.train is None:
        parser.error(f"--split {split} follows from no rule, so it needs --raw DIR with its files")
    remedy = "add pairs to it"
    if args.train is not None:
        source, remedy = own_source(args), f"{remedy}, or give a validation set with --valid FILE"
    elif args.cutoff is not None:
        source = cut_off_source(args.raw, args.cutoff, args.limit)
    else:
        source = split_source(args.raw, split, args.limit)
    name, files, make = source

    def make_parts() -> Parts:
        parts = make()
        if "valid" in parts:
            refuse_options(
                args, ["valid_size"],
                f"with --split {split}, which has a validation set of its own",
            )  # fmt: skip
        return take_validation(parts, args.valid_size, remedy)

    experiment = "scan" if args.cutoff is None else "scan_cutoffs"
    prepare(args, files, make_parts, name="scan", split=name, experiment=experiment)
