"""The variants of long lookup tables: how a lookup is written, and its gold attention.

A lookup is a string of 3 bits and the tables that are applied to it, in order. Its target
is the string and the value after each table. (Dubois et al., 2020, 6.1.)

    long     001 t1 t4 .            001 001 100
    reverse  t4 t1 001 .            the same; tables are written in the opposite order
    noisy    001 t5 t2 ! t1 t4 .    the same; tables before the `!` are not applied

The gold attention of a pair has, for each word of the target, the position, from 0, of the source
word that it depends on: the string, each table that is applied, and, for the end of the target, the
full stop.
"""

from __future__ import annotations

from typing import NamedTuple

STRINGS = [f"{number:03b}" for number in range(8)]
STOP, START = ".", "!"

Tables = dict[str, dict[str, str]]


class Lookup(NamedTuple):
    """A string, the tables that are applied to it, in order, and those that are not."""

    string: str
    tables: tuple[str, ...]
    noise: tuple[str, ...] = ()

    def target(self, tables: Tables) -> str:
        """The string and the value after each table; `KeyError` for an unknown table."""
        values = [self.string]
        for name in self.tables:
            values.append(tables[name][values[-1]])
        return " ".join(values)


class Long:
    """The string, then the tables in the order in which they are applied."""

    @staticmethod
    def write(lookup: Lookup) -> list[str]:
        return [lookup.string, *lookup.tables, STOP]

    @staticmethod
    def read(words: list[str]) -> Lookup:
        return Lookup(words[0], tuple(words[1:-1]))

    @staticmethod
    def attention(lookup: Lookup) -> list[int]:
        return [*range(len(lookup.tables) + 2)]


class Reverse:
    """The tables in the opposite order, then the string."""

    @staticmethod
    def write(lookup: Lookup) -> list[str]:
        return [*reversed(lookup.tables), lookup.string, STOP]

    @staticmethod
    def read(words: list[str]) -> Lookup:
        return Lookup(words[-2], tuple(reversed(words[:-2])))

    @staticmethod
    def attention(lookup: Lookup) -> list[int]:
        string = len(lookup.tables)
        return [*range(string, -1, -1), string + 1]


class Noisy:
    """As `Long`, with tables that are not applied between the string and a `!`."""

    @staticmethod
    def write(lookup: Lookup) -> list[str]:
        return [lookup.string, *lookup.noise, START, *lookup.tables, STOP]

    @staticmethod
    def read(words: list[str]) -> Lookup:
        start = words.index(START)
        return Lookup(words[0], tuple(words[start + 1 : -1]), tuple(words[1:start]))

    @staticmethod
    def attention(lookup: Lookup) -> list[int]:
        first = len(lookup.noise) + 2
        return [0, *range(first, first + len(lookup.tables) + 1)]


Variant = type[Long] | type[Reverse] | type[Noisy]
VARIANTS: dict[str, Variant] = {"long": Long, "reverse": Reverse, "noisy": Noisy}


def parse(source: str, variant: Variant) -> Lookup:
    """Read a source.

    Raises:
        ValueError: if it is not one of this variant.
    """
    words = source.split()
    if len(words) > 2 and words[-1] == STOP:
        try:
            lookup = variant.read(words)
        except ValueError:
            lookup = None
        if (
            lookup is not None
            and lookup.string in STRINGS
            and lookup.tables
            and not {*STRINGS, STOP, START}.intersection(lookup.tables + lookup.noise)
        ):
            return lookup
    raise ValueError(f"`{source[:60]}` is not a lookup of this variant")
