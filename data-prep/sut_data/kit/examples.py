"""Common code of the formal data sets: examples, counts, and the way to a folder for fairseq.

Each data set is one program that turns raw files or a grammar into *parts*, named lists of
examples. `train`, `valid` and `test` are always there; any further part becomes an evaluation set
of its name.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sut_data.command_line import Parser
from sut_data.errors import InputError
from sut_data.files import write_lines
from sut_data.kit import preparation
from sut_data.text.pairs import Inputs
from sut_data.text.treatment import Treatment
from sut_data.waiting import waiting

SEED = 1


class Example(NamedTuple):
    """One pair, words separated by one space, with its value in each column of the data set."""

    source: str
    target: str
    values: tuple[str, ...] = ()


Parts = dict[str, list[Example]]


def make_parser(program: str, description: str, raw: str, epilog: str = "") -> Parser:
    """Return the parser of `preparation.make_parser` for a data set that `--limit` samples."""
    limit = (
        "N random examples of each part; sizes that differ from the published ones are then "
        "reported, not refused"
    )
    return preparation.make_parser(program, description, raw, limit, epilog)


def keyed_order(examples: Iterable[Example], purpose: str) -> list[Example]:
    """Return the examples in a random order that is the same on every machine and Python version.

    The order is that of a hash of seed, purpose and source, so it does not depend on the order in
    which the examples come, and two purposes give independent orders. Copies of an example are
    spread over the order: each but the first has its number in its hash too.
    """
    copies: Counter[str] = Counter()

    def key(example: Example) -> bytes:
        copies[example.source] += 1
        number = copies[example.source]
        which = f" copy {number}" if number > 1 else ""
        return hashlib.sha256(f"{SEED} {purpose} {example.source}{which}".encode()).digest()

    return sorted(examples, key=key)


def sizes(counts: dict[str, int]) -> str:
    """Return counts as words: `16,728 train, 4,182 test`."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def check_counts(
    name: str, found: dict[str, int], published: dict[str, int], limit: int | None
) -> None:
    """Print the sizes of a data set and compare them with the published ones.

    Args:
        name: what was counted.
        found, published: sizes by part. Parts that only one of them has are not compared; the
            message then names the compared ones.
        limit: value of `--limit`; with one, a difference is printed and not refused.

    Raises:
        InputError: if a size differs, without a limit.
    """
    expected = {part: count for part, count in published.items() if part in found}
    compared = {part: found[part] for part in expected}
    if not expected:
        print(f"{name}: {sizes(found)}.")
    elif compared == expected:
        which = "" if len(compared) == len(found) else f" (compared: {', '.join(compared)})"
        print(f"{name}: {sizes(found)}; the published sizes agree{which}.")
    elif limit is None:
        raise InputError(
            f"{name} has {sizes(compared)}, but was published with {sizes(expected)}: "
            "the files are incomplete or altered (with --limit N any are read)."
        )
    else:
        print(f"{name}: {sizes(found)}; published were {sizes(expected)}.")


def cut(parts: Parts, limit: int | None, *, labels: bool = False) -> Parts:
    """Keep `limit` random examples of each part; all of them where it is None.

    Args:
        labels: the targets are labels, all of which must be trained before they are evaluated:
            train begins with one example of each, even if these are more than `limit`.
    """
    if limit is None:
        return parts
    print(f"--limit: at most {limit} examples of each part are kept.")
    kept = {name: keyed_order(part, "limit")[:limit] for name, part in parts.items()}
    if labels:
        first: dict[str, Example] = {}
        rest = []
        for example in keyed_order(parts["train"], "limit"):
            if first.setdefault(example.target, example) is not example:
                rest.append(example)
        kept["train"] = [*first.values(), *rest[: max(0, limit - len(first))]]
        if len(first) > limit:
            print(f"train keeps {len(first)}, one for each label.")
    return kept


def take_validation(parts: Parts, size: int, remedy: str = "add pairs to it") -> Parts:
    """Take `size` random examples out of train for validation, where there is no valid yet.

    An example that train repeats is never taken: there would be nothing left to learn it from.

    Args:
        parts: with train.
        size: how many to take.
        remedy: what the user can do if no size is possible.

    Raises:
        InputError: if `size` is below 1 or leaves nothing to train on.
    """
    if "valid" in parts:
        return parts
    train = parts["train"]
    times = Counter(train)
    candidates = [example for example in train if times[example] == 1]
    if len(candidates) < 2:
        raise InputError(
            f"no pair of the training set can be spared for validation: {len(candidates)} of its "
            f"{len(train)} occur only once, and at least 2 are needed; {remedy}."
        )
    if not 1 <= size < len(candidates):
        raise InputError(
            f"--valid-size must be between 1 and {len(candidates) - 1} for this split, "
            f"but is {size}."
        )
    valid = set(keyed_order(candidates, "validation")[:size])
    kept = [example for example in train if example not in valid]
    return {**parts, "train": kept, "valid": [example for example in train if example in valid]}


def write_text(folder: Path, parts: Parts, columns: Sequence[str]) -> Inputs:
    """Write `<part>.src`, `<part>.tgt` and, except for train, `<part>.<column>` to a folder."""
    inputs = Inputs({}, {})
    for name, part in parts.items():
        source, target = inputs.pairs[name] = folder / f"{name}.src", folder / f"{name}.tgt"
        write_lines(source, (example.source for example in part))
        write_lines(target, (example.target for example in part))
        for index, column in enumerate(columns if name != "train" else ()):
            path = inputs.columns[name, column] = folder / f"{name}.{column}"
            write_lines(path, (example.values[index] for example in part))
    return inputs


def prepare(
    args: argparse.Namespace,
    raw_files: Iterable[Path],
    make_parts: Callable[[], Parts],
    columns: Sequence[str] = (),
    *,
    name: str,
    split: str | None = None,
    experiment: str | None = None,
    labels: bool = False,
    subsets: Mapping[str, Callable[[Example], bool]] | None = None,
) -> None:
    """Make the folder `args.out` of a data set, unless it is there.

    Args:
        args: the options of `make_parser`, and the data set's own.
        raw_files: all files that `make_parts` reads.
        make_parts: returns examples by part.
        columns: names of the examples' values, which are kept for evaluation of all but train.
        name: of the data set.
        split: which of its splits this is, if there are several.
        experiment: the one whose training command is printed; None: that of the data set's name.
        labels: the targets are labels; see `cut`.
        subsets: further sets by name, and which examples of train each of them repeats.
    """

    subsets = subsets or {}

    def write(folder: Path) -> Inputs:
        parts = cut(make_parts(), args.limit, labels=labels)
        for subset, belongs in subsets.items():
            parts[subset] = [example for example in parts["train"] if belongs(example)]
            if not parts[subset]:
                more = "more of them" if args.limit is None else "a greater --limit"
                raise InputError(
                    f"None of the training examples belongs to the set `{subset}`: give {more}."
                )
        with waiting("writing the text"):
            return write_text(folder, parts, columns)

    preparation.prepare(
        args,
        raw_files,
        write,
        Treatment(),
        name=name,
        split=split,
        experiment=experiment,
        of_train=subsets,
    )
