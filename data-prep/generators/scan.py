"""SCAN of Lake and Baroni (2018): commands and actions, generated or from the published files."""

from __future__ import annotations

import re
from pathlib import Path

from dataset import Example, Parts, check_counts, make_parser, prepare, take_validation
from raw_files import find
from scan_grammar import all_pairs, interpret
from scan_splits import (
    OTHER_NAMES,
    PUBLISHED_SIZES,
    SPLITS,
    Split,
    cut_off,
)
from text_files import InputError, read_lines, run

ALL_PAIRS = 20_910


def raw_files(raw: Path | None, split: str, cutoff: int | None) -> list[Path]:
    """Return the published files that are read; none where the pairs are generated."""
    if raw is None:
        return []
    if cutoff is not None:
        return [find(raw, "tasks.txt")]
    return [find(raw, f"tasks_{side}_{split}.txt") for side in Split._fields]


def read_published(folder: Path, split: str) -> Split:
    """Read a split from the published files, anywhere a checkout of the SCAN repository has them.

    Raises:
        InputError: if a file is absent or a line is not a SCAN pair.
    """
    return Split(*map(read_pairs, raw_files(folder, split, None)))


def read_pairs(path: Path) -> list[Example]:
    """Read one published file, every line of it.

    Raises:
        InputError: naming the first line that is not a command with its actions.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        match = re.fullmatch(r"IN: (.+) OUT: (.+)", line.strip())
        if match is None:
            raise InputError(
                f"{path}, line {number}: expected `IN: <command> OUT: <actions>`, "
                f"but found `{line[:60]}`."
            )
        pair = Example(match[1], match[2])
        try:
            expected = " ".join(interpret(pair.source))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}.") from error
        if pair.target != expected:
            raise InputError(
                f"{path}, line {number}: the actions do not follow from `{pair.source}`; "
                "the file is not the published one."
            )
        pairs.append(pair)
    return pairs


def make_parts(raw: Path | None, split: str, cutoff: int | None, limit: int | None) -> Parts:
    """Generate or read the pairs of a split, or of a cut-off where there is one.

    Returns:
        `train`, `test`, and for a cut-off `iid`.
    """
    origin = "generated" if raw is None else "published files"
    if cutoff is not None:
        pairs = all_pairs() if raw is None else read_pairs(find(raw, "tasks.txt"))
        name = f"SCAN cut-off {cutoff} ({origin})"
        check_counts(name, {"pairs": len(pairs)}, {"pairs": ALL_PAIRS}, limit)
        return cut_off(pairs, cutoff)
    train, test = SPLITS[split]() if raw is None else read_published(raw, split)
    found = {"train": len(train), "test": len(test)}
    check_counts(f"SCAN {split} ({origin})", found, PUBLISHED_SIZES[split], limit)
    return {"train": train, "test": test}


def main() -> None:
    """Make one split, take the validation set out of its training set, and prepare it."""
    parser = make_parser(
        "scan.sh",
        "Prepare SCAN for fairseq: commands (`jump twice`) and actions (`I_JUMP I_JUMP`). Without "
        "--raw the\npairs come from the grammar: nothing is downloaded, and it takes seconds.",
        "read the published files (tasks_train_<split>.txt, tasks_test_<split>.txt, for --cutoff "
        "tasks.txt; plain or .gz, also one folder further down) instead of generating",
        "The `simple` split was published as one random draw; generated, it is a draw of our own "
        "of the same\nsizes (16,728 and 4,182). The others hold exactly the published pairs.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--split", choices=[*SPLITS, *OTHER_NAMES], default="simple", metavar="NAME",
        help=f"{', '.join(SPLITS)}, or what papers call them: {', '.join(OTHER_NAMES)} "
        "(default: simple)",
    )  # fmt: skip
    which.add_argument(
        "--cutoff", type=int, metavar="N",
        help="instead of a split, divide all 20,910 pairs: outputs of at most N actions (the "
        "length study has 22 to 40) are trained on but for a tenth, the further set `iid`, and "
        "the longer ones are the test set",
    )  # fmt: skip
    parser.add_argument(
        "--valid-size", type=int, default=500, metavar="N",
        help="pairs taken out of the training set for validation (default: 500), so that the test "
        "set is never used for it",
    )  # fmt: skip
    args = parser.parse_args()
    split = OTHER_NAMES.get(args.split, args.split)

    def make() -> Parts:
        parts = make_parts(args.raw, split, args.cutoff, args.limit)
        return take_validation(parts, args.valid_size)

    name = split if args.cutoff is None else f"cutoff_{args.cutoff}"
    prepare(args, raw_files(args.raw, split, args.cutoff), make, name="scan", split=name)


if __name__ == "__main__":
    run(main, "scan.sh")
