"""Long lookup tables by the rules of the published files, from a seed.

There are 8 tables, different bijections of the 8 strings. 6 of them are trained in compositions, 2
only by themselves, and train has all lookups of one table. Of the 1,296 compositions of 4 trained
tables, 50 are held out, and of every other one 2 of the 8 strings.

    heldout_compositions  those 50                          heldout_inputs    those strings
    heldout_tables        4 tables, one of them untrained   new_compositions  4 untrained tables

The longer sets have compositions of 5 to 9 tables, each with all strings: `longer_seen_1` to `_5`
of trained tables, `longer_incremental` of one untrained table and otherwise trained ones,
`longer_new` of untrained ones. Compositions of one more table extend those of the set before.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import product
from typing import TypeVar

from sut_data.kit.by_depth import proportional
from sut_data.sets.long_lookup_tables.variants import STRINGS, Lookup, Tables

TRAINED = tuple(f"t{number}" for number in range(1, 7))
UNTRAINED = ("t7", "t8")
MOST_TRAINED = 4  # tables in a composition of the training set
HELD_OUT_COMPOSITIONS = 50
HELD_OUT_INPUTS = 2  # of each composition
VALIDATION = 475
MOST_PAIRS = 5000  # of a test set
LONGER = range(1, 6)
MOST_NOISE = 9

Composition = tuple[str, ...]
Lookups = dict[str, list[Lookup]]
T = TypeVar("T")


class Draw:
    """Random choices of a seed, the same in every version of Python; each purpose has its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def shuffled(self, items: Iterable[T], purpose: str) -> list[T]:
        """The items in random order."""
        # Only `random()` gives the same numbers in every version of Python.
        uniform = random.Random(f"{self._seed} {purpose}").random
        return sorted(items, key=lambda item: uniform())

    def numbers(self, below: int, purpose: str) -> Iterator[int]:
        """Random integers in [0, `below`), without end."""
        uniform = random.Random(f"{self._seed} {purpose}").random
        while True:
            yield int(uniform() * below)


def make_tables(draw: Draw) -> Tables:
    """Return the tables of a seed, no two of them equal."""
    found: list[list[str]] = []
    attempt = 0
    while len(found) < len(TRAINED + UNTRAINED):
        values = draw.shuffled(STRINGS, f"table {attempt}")
        attempt += 1
        if values not in found:
            found.append(values)
    return {name: dict(zip(STRINGS, row)) for name, row in zip(TRAINED + UNTRAINED, found)}


def make_lookups(draw: Draw) -> Lookups:
    """Return the lookups of `train`, `valid` and every test set by its published name."""
    longest = draw.shuffled(product(TRAINED, repeat=MOST_TRAINED), "compositions")
    held_out, longest = longest[:HELD_OUT_COMPOSITIONS], longest[HELD_OUT_COMPOSITIONS:]
    kept: dict[int, list[Lookup]] = {
        length: _all(product(TRAINED, repeat=length)) for length in range(2, MOST_TRAINED)
    }
    kept[MOST_TRAINED] = []
    inputs: list[Lookup] = []
    for composition in longest:
        strings = draw.shuffled(STRINGS, f"inputs of {composition}")
        inputs += [Lookup(string, composition) for string in strings[:HELD_OUT_INPUTS]]
        kept[MOST_TRAINED] += [Lookup(string, composition) for string in strings[HELD_OUT_INPUTS:]]
    train = _all((name,) for name in TRAINED + UNTRAINED)
    valid: list[Lookup] = []
    sizes = proportional(VALIDATION, {length: len(some) for length, some in kept.items()})
    for length, lookups in kept.items():
        order = draw.shuffled(lookups, f"validation of {length} tables")
        valid += order[: sizes[length]]
        train += order[sizes[length] :]
    all_tables = TRAINED + UNTRAINED
    one_untrained = [
        one for one in product(all_tables, repeat=MOST_TRAINED) if _untrained(one) == 1
    ]
    sets = {
        "heldout_inputs": inputs,
        "heldout_compositions": _all(held_out),
        "heldout_tables": draw.shuffled(_all(one_untrained), "heldout tables")[:MOST_PAIRS],
        "new_compositions": _all(product(UNTRAINED, repeat=MOST_TRAINED)),
        **_longer(draw),
    }
    return {"train": train, "valid": draw.shuffled(valid, "validation"), **sets}


def _all(compositions: Iterable[Composition]) -> list[Lookup]:
    """Every string with each of the compositions."""
    return [Lookup(string, one) for one in compositions for string in STRINGS]


def _untrained(composition: Composition) -> int:
    return sum(name in UNTRAINED for name in composition)


def _longer(draw: Draw) -> Lookups:
    """The sets with more tables than in training."""
    all_tables = TRAINED + UNTRAINED
    pool: Iterable[Composition] = product(all_tables, repeat=MOST_TRAINED)
    sets: Lookups = {}
    for more in LONGER:
        longer = [(*shorter, name) for shorter in pool for name in all_tables]
        length = MOST_TRAINED + more
        pool = []
        for kind, untrained in (("seen", 0), ("incremental", 1), ("new", length)):
            name = f"longer_{kind}_{more}"
            fitting = [one for one in longer if _untrained(one) == untrained]
            chosen = draw.shuffled(fitting, name)[: MOST_PAIRS // len(STRINGS)]
            sets[name] = _all(chosen)
            pool += chosen
    return sets


def add_noise(draw: Draw, lookups: Lookups) -> Lookups:
    """Put 0 to 9 random trained tables into each lookup, all numbers equally likely."""
    noisy: Lookups = {}
    for name, some in lookups.items():
        amounts = draw.numbers(MOST_NOISE + 1, f"noise of {name}")
        tables = draw.numbers(len(TRAINED), f"noise tables of {name}")
        noisy[name] = [
            one._replace(noise=tuple(TRAINED[next(tables)] for _ in range(next(amounts))))
            for one in some
        ]
    return noisy
