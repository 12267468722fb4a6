"""Logical inference (Bowman et al., 2015): the relation between two formulas, one of seven.

The published files are numbered by the operators (`and`, `or`, `not`) of the longer side; the last,
12, has 12 and more. A line is `relation TAB premise TAB hypothesis`, every operation in brackets:
`( not ( a ( and b ) ) )`. Relations follow from truth tables; every line that is read is checked.

The splits A, B and C of Shen et al. (2019) hold out of training every line in which a side has

    A   ( and ( not a ) )
    B   ( and ( not X ) )            for any X
    C   ( and/or ( not X ) )         for any X
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders.raw_files import obtain
from sut_data.kit.examples import Example, Parts, check_counts, make_parser, prepare
from sut_data.waiting import waiting

ADDRESS = (
    "https://raw.githubusercontent.com/sleepinyourhat/vector-entailment/master/propositionallogic/"
)
TRAIN_FILES = [f"train{operators}" for operators in range(7)]
TEST_FILES = [f"test{operators}" for operators in range(13)]
PATTERNS = {
    "A": re.compile(r"\( and \( not a \) \)"),
    "B": re.compile(r"\( and \( not "),
    "C": re.compile(r"\( (and|or) \( not "),
}
COLUMNS = ("operators", *PATTERNS)
SHORT_OPERATORS = 3
VALID_EVERY = 10

TRAINED_ON = {"full": 135_529, "A": 128_969, "B": 87_948, "C": 51_896}
TESTED_ON = 37_367

# The models of a formula as 64 bits, one for each assignment of the six variables.
ASSIGNMENTS = 64
ALL = (1 << ASSIGNMENTS) - 1
VARIABLES = {
    letter: sum(1 << row for row in range(ASSIGNMENTS) if row >> index & 1)
    for index, letter in enumerate("abcdef")
}


@lru_cache(maxsize=1 << 16)
def truth_table(formula: str) -> int:
    """Return the assignments under which a formula holds, one bit each.

    Raises:
        ValueError: if it is not a fully bracketed formula over a to f.
    """
    groups: list[list[Any]] = [[]]
    for token in formula.split():
        if token == "(":
            groups.append([])
        elif token == ")" and len(groups) > 1:
            group = groups.pop()
            groups[-1].append(_combine(group, formula))
        else:
            groups[-1].append(VARIABLES.get(token, token))
    if len(groups) != 1 or len(groups[0]) != 1 or not isinstance(groups[0][0], int):
        raise ValueError(f"`{formula[:60]}` is not a formula")
    return int(groups[0][0])


def _combine(group: list[Any], formula: str) -> Any:
    """Value of the contents of a pair of brackets: `not X`, `X (op Y)`, or, unapplied, `op Y`."""
    if len(group) == 2:
        first, second = group
        if first == "not" and isinstance(second, int):
            return ALL & ~second
        if first in ("and", "or") and isinstance(second, int):
            return first, second
        if isinstance(first, int) and isinstance(second, tuple):
            return first & second[1] if second[0] == "and" else first | second[1]
    raise ValueError(f"`{formula[:60]}` is not a formula")


def relation(premise: str, hypothesis: str) -> str:
    """Return which of the seven relations `= < > ^ | v #` holds between two formulas.

    Raises:
        ValueError: if one of them is not a formula.
    """
    left, right = truth_table(premise), truth_table(hypothesis)
    if left == right:
        return "="
    if not left & ~right:
        return "<"
    if not right & ~left:
        return ">"
    disjoint, exhaustive = not left & right, left | right == ALL
    if disjoint:
        return "^" if exhaustive else "|"
    return "v" if exhaustive else "#"


def count_operators(*formulas: str) -> int:
    """Return the largest number of operators in any of the formulas."""
    return max(
        sum(token in ("and", "or", "not") for token in formula.split()) for formula in formulas
    )


def read_file(path: Path, operators: int) -> list[Example]:
    """Read one published file, every line of it.

    Args:
        path: the file, plain or `.gz`.
        operators: its number, that of the operators of every line; 12 stands for 12 or more.

    Raises:
        InputError: naming the first line that is not as published.
    """
    examples = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 3:
            raise InputError(
                f"{path}, line {number}: expected `relation TAB premise TAB hypothesis`, "
                f"but found `{line[:60]}`."
            )
        label, premise, hypothesis = (" ".join(field.split()) for field in fields)
        try:
            expected = relation(premise, hypothesis)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error} over a to f.") from error
        if label != expected:
            raise InputError(
                f"{path}, line {number}: the relation is `{expected}` and not `{label[:60]}`; "
                "the file is not the published one."
            )
        found = min(count_operators(premise, hypothesis), len(TEST_FILES) - 1)
        if found != operators:
            raise InputError(
                f"{path}, line {number} has {found} operators where the file's name says "
                f"{operators}; the file is not the published one."
            )
        matches = ("yes" if matches_pattern(p, premise, hypothesis) else "no" for p in PATTERNS)
        values = (str(operators), *matches)
        examples.append(Example(f"{premise} #SEP# {hypothesis}", label, values))
    return examples


def matches_pattern(split: str, premise: str, hypothesis: str) -> bool:
    """Tell whether a side has what the split A, B or C holds out of training."""
    return any(PATTERNS[split].search(formula) for formula in (premise, hypothesis))


def make_parts(train: list[Example], test: list[Example], split: str) -> Parts:
    """Divide the lines of train0 to train6 into training, validation and what a split holds out.

    Args:
        train: the lines of all training files in their order.
        test: the lines of all test files.
        split: `full`, `A`, `B` or `C`.

    Returns:
        `train`, `valid` (every tenth line that is kept), `test`, and for A, B and C `heldout`.
    """
    kept, heldout = train, []
    if split != "full":
        column = COLUMNS.index(split)
        kept = [example for example in train if example.values[column] == "no"]
        heldout = [example for example in train if example.values[column] == "yes"]
    parts = {
        "train": [example for n, example in enumerate(kept, start=1) if n % VALID_EVERY],
        "valid": kept[VALID_EVERY - 1 :: VALID_EVERY],
        "test": test,
    }
    if split != "full":
        parts["heldout"] = heldout
    return parts


def is_short(example: Example) -> bool:
    """Tell whether an example has so few operators that it is in the set `short`."""
    return int(example.values[0]) <= SHORT_OPERATORS


def main(program: str, argv: Sequence[str]) -> None:
    """Read the published files, check them, and prepare one split."""
    parser = make_parser(
        program,
        "Prepare logical inference (Bowman et al., 2015) for fairseq: `premise #SEP# hypothesis` "
        "as the source, the relation between them as a target of one token.",
        "folder with train0 ... train6 and test0 ... test12, plain or .gz; without it they are "
        "downloaded",
        "Training has the formulas of at most 6 operators; every tenth of its lines is the "
        "validation set. All splits have the same test set, test0 to test12, with the columns "
        "`operators` (0 to 12, where 12 means 12 or more) and `A`, `B`, `C` (yes or no: whether "
        "that split holds the line out of training). So the result of split A is the accuracy on "
        "the group A=yes of the test set. The training lines that A, B or C hold out are the "
        "additional set `heldout`. The set `short` has the training lines of at most 3 operators, "
        "for an easier start (`--train-subset short`).",
    )
    parser.add_argument(
        "--split", choices=list(TRAINED_ON), default="full",
        help="full (default), or without a pattern in training: A `( and ( not a ) )`, B "
        "`( and ( not X ) )`, C `( and/or ( not X ) )`",
    )  # fmt: skip
    args = parser.parse_args(argv)
    urls = {name: ADDRESS + name for name in (*TRAIN_FILES, *TEST_FILES)}
    files = obtain(args.raw, "logical_inference", urls)

    def read() -> Parts:
        with waiting("reading logical inference"):
            train, test = (
                [line for n, name in enumerate(names) for line in read_file(files[name], n)]
                for names in (TRAIN_FILES, TEST_FILES)
            )
        parts = make_parts(train, test, args.split)
        counts = {"lines to train on": len(parts["train"]) + len(parts["valid"]), "test": len(test)}
        published = {"lines to train on": TRAINED_ON[args.split], "test": TESTED_ON}
        check_counts(f"Logical inference {args.split}", counts, published, args.limit)
        return parts

    prepare(
        args, files.values(), read, COLUMNS, name="logical_inference", split=args.split,
        labels=True, subsets={"short": is_short},
    )  # fmt: skip
