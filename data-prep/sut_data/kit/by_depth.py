"""Common code of the data sets balanced by depth: options, and how the parts are filled.

A depth is either trained on or only evaluated: `train` and `valid` have the shallow ones,
`valid_deep` and `test` others. A part has equally many samples of each of its depths, as far as so
many different ones exist: no sample occurs twice, neither in one part nor in two.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from sut_data.command_line import Parser, whole_number
from sut_data.errors import InputError
from sut_data.kit import preparation
from sut_data.kit.examples import Example, Parts, keyed_order
from sut_data.tables import table
from sut_data.waiting import waiting

ENOUGH_FOR_LABELS = 1000  # samples; a training set of this size contains every answer


class Sizes(NamedTuple):
    """How many samples each part has."""

    train: int
    valid: int
    valid_deep: int
    test: int


class Depths(NamedTuple):
    """The depths of the samples of each part; `valid` has those of `train`."""

    train: Sequence[int]
    valid_deep: Sequence[int]
    test: Sequence[int]


def make_parser(program: str, description: str, sizes: Sizes, epilog: str) -> Parser:
    """Return a parser with the options of a generated data set, which has no raw files.

    Args:
        program, description, epilog: as for `preparation.make_parser`.
        sizes: the default sizes.
    """
    limit = "N random samples of each part"
    parser = preparation.make_parser(program, description, None, limit, epilog)
    parser.add_argument(
        "--sizes", type=whole_number, nargs=len(sizes), metavar=sizes._fields, default=[*sizes],
        help=f"samples in each part, over all its depths (default: {' '.join(map(str, sizes))})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")
    return parser


def add_test_depths(parser: Parser, depths: Sequence[int]) -> None:
    """Let the user choose among the depths of the test set."""
    parser.add_argument(
        "--test-depths", action=_Ascending, type=int, nargs="+", choices=depths,
        default=[*depths], metavar="N",
        help=f"depths of the test set (default: {' '.join(map(str, depths))})",
    )  # fmt: skip


class _Ascending(argparse.Action):
    """Keeps numbers sorted, each of them once."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, sorted(set(values)))


def share(total: int, populations: Mapping[int, int | None]) -> dict[int, int]:
    """Divide samples among depths as equally as the depths allow.

    Args:
        total: number of samples.
        populations: how many different samples of each depth exist; None for more than are wanted.

    Returns:
        number of samples of each depth. The numbers differ by at most one, except for depths that
        are used up.

    Raises:
        InputError: if there are too few.
    """

    def size(depth: int) -> int:
        population = populations[depth]
        return total if population is None else min(total, population)

    shares = {}
    left = total
    scarce_first = sorted(populations, key=size)
    for done, depth in enumerate(scarce_first):
        shares[depth] = min(size(depth), left // (len(scarce_first) - done))
        left -= shares[depth]
    if left:
        raise InputError(
            f"{total:,} samples of depth {min(populations)} to {max(populations)} are wanted, but "
            f"only {total - left:,} different ones exist: give smaller --sizes."
        )
    return {depth: shares[depth] for depth in populations}


def proportional(total: int, counts: Mapping[int, int]) -> dict[int, int]:
    """Divide `total` in the proportions of `counts`, by largest remainder."""
    whole = sum(counts.values())
    shares = {depth: total * number // whole for depth, number in counts.items()}
    by_remainder = sorted(counts, key=lambda depth: -(total * counts[depth] % whole))
    for depth in by_remainder[: total - sum(shares.values())]:
        shares[depth] += 1
    return shares


def divide(
    sizes: Sizes, depths: Depths, populations: Mapping[int, int | None]
) -> dict[str, dict[int, int]]:
    """Decide how many samples of each depth every part has.

    All samples of the least depth are trained on: without them a task may not be learnable.

    Args:
        sizes, depths: of the parts.
        populations: how many different samples of each depth exist; None for more than are wanted.

    Returns:
        numbers by part and depth.

    Raises:
        InputError: if the sizes are impossible.
    """

    def shares(size: int, which: Sequence[int]) -> dict[int, int]:
        return share(size, {depth: populations[depth] for depth in which})

    together = shares(sizes.train + sizes.valid, depths.train)
    least = min(depths.train)
    if together[least] != populations[least]:
        raise InputError(
            f"--sizes gives a training set of {sizes.train:,} samples, where there is no room for "
            f"all {populations[least]:,} of depth {least}: give more, "
            f"{len(depths.train) * (populations[least] or 0):,} are enough."
        )
    divisible = {depth: number for depth, number in together.items() if depth != least}
    if sizes.valid >= sum(divisible.values()):
        raise InputError(
            f"--sizes gives a validation set of {sizes.valid:,} samples, which leaves nothing to "
            "train on: give fewer, or a larger training set."
        )
    valid = proportional(sizes.valid, divisible)
    return {
        "train": {depth: number - valid.get(depth, 0) for depth, number in together.items()},
        "valid": valid,
        "valid_deep": shares(sizes.valid_deep, depths.valid_deep),
        "test": shares(sizes.test, depths.test),
    }


def distinct(samples: Generator[Example, None, None], size: int) -> Iterator[Example]:
    """Yield the first `size` different samples of an endless stream, and close it."""
    seen: set[str] = set()
    with closing(samples):
        while len(seen) < size:
            example = next(samples)
            if example.source not in seen:
                seen.add(example.source)
                yield example


def make_parts(
    args: argparse.Namespace,
    depths: Depths,
    populations: Mapping[int, int | None],
    stream: Callable[[int], Generator[Example, None, None]],
) -> Parts:
    """Fill the parts of a data set, and print how many samples of each depth they have.

    Args:
        args: the options of `make_parser`.
        depths, populations: see `divide`.
        stream: returns an endless stream of random samples of a depth.

    Returns:
        the parts, each in a random order that depends on nothing but the seed and the samples.

    Raises:
        InputError: if the sizes are impossible.
    """
    from tqdm import tqdm

    sizes = Sizes(*args.sizes)
    if args.limit is not None:
        limits = (max(args.limit, ENOUGH_FOR_LABELS), args.limit, args.limit, args.limit)
        sizes = Sizes(*map(min, sizes, limits))
    numbers = divide(sizes, depths, populations)
    parts: Parts = {part: [] for part in numbers}
    with tqdm(total=sum(sizes), disable=None, leave=False) as bar:
        for depth in populations:
            bar.set_description(f"depth {depth}")
            wanted = {part: by_depth.get(depth, 0) for part, by_depth in numbers.items()}
            samples = []
            for example in distinct(stream(depth), sum(wanted.values())):
                samples.append(example)
                bar.update()
            # Rare samples come late in the stream, so parts are not cut from it in its order.
            remaining = iter(keyed_order(samples, f"{args.seed} parts"))
            for part, size in wanted.items():
                parts[part] += islice(remaining, size)
    print_counts(parts, args.limit)
    with waiting("shuffling"):
        return {part: keyed_order(some, f"{args.seed} order") for part, some in parts.items()}


def print_counts(parts: Parts, limit: int | None) -> None:
    """Print how many samples of each depth every part has."""
    counts = [Counter(int(sample.values[0]) for sample in part) for part in parts.values()]
    print("samples by depth" + (":" if limit is None else ", before --limit:"))
    rows = [("depth", *parts)]
    for depth in sorted(set().union(*counts)):
        rows.append((str(depth), *(f"{count[depth]:,}" for count in counts)))
    rows.append(("all", *(f"{len(part):,}" for part in parts.values())))
    print(table(rows))
