"""Common code of the translation data sets: from raw files to a folder for fairseq."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sut_data.command_line import Parser, whole_number
from sut_data.errors import InputError
from sut_data.files import read_lines, write_lines
from sut_data.kit import preparation
from sut_data.text.pairs import Inputs, evenly_spaced
from sut_data.text.treatment import Treatment
from sut_data.waiting import waiting


class Corpus(NamedTuple):
    """Two aligned files; `sizes` are the published numbers of lines."""

    name: str
    source: Path
    target: Path
    sizes: tuple[int, ...]


Sets = dict[str, list[Corpus]]  # train, valid, test and further evaluation sets


def make_parser(program: str, description: str, raw: str, bpe: int, epilog: str = "") -> Parser:
    """Return the parser of `preparation.make_parser` with the option `--bpe`, by default `bpe`."""
    parser = preparation.make_parser(
        program, description, raw, "N pairs of each set, evenly spaced", epilog
    )
    parser.add_argument(
        "--bpe", type=whole_number, default=bpe, metavar="N",
        help=f"merges of the byte pair encoding of both languages together (default: {bpe})",
    )  # fmt: skip
    return parser


def count_pairs(corpus: Corpus) -> int:
    """Count the pairs of a corpus, print the number and compare it with the published one.

    Raises:
        InputError: if the numbers differ, or the two sides do.
    """
    with waiting(f"counting {corpus.name}"):
        found = [sum(1 for _ in read_lines(path)) for path in (corpus.source, corpus.target)]
    expected = " or ".join(f"{size:,}" for size in corpus.sizes)
    if found[0] != found[1] or found[0] not in corpus.sizes:
        raise InputError(
            f"{corpus.name} has {found[0]:,} source and {found[1]:,} target lines, but was "
            f"published with {expected}: the files are incomplete or altered."
        )
    print(f"{corpus.name}: {found[0]:,} pairs, as published.", flush=True)
    return found[0]


def write_set(corpora: Sequence[Corpus], limit: int | None, prefix: Path) -> tuple[Path, Path]:
    """Write corpora one after the other to `<prefix>.src` and `<prefix>.tgt`.

    Args:
        corpora: what the set consists of; the sizes are compared with the published ones.
        limit: how many pairs to keep, evenly spaced; None for all.
        prefix: path of the two files without the suffix.

    Returns:
        the paths of both.
    """
    total = sum(count_pairs(corpus) for corpus in corpora)
    source, target = (prefix.with_name(f"{prefix.name}.{side}") for side in ("src", "tgt"))
    for path, files in (
        (source, [corpus.source for corpus in corpora]),
        (target, [corpus.target for corpus in corpora]),
    ):
        lines = chain.from_iterable(map(read_lines, files))
        with waiting(f"writing {path.name}"):
            write_lines(path, evenly_spaced(lines, total, limit or total))
    return source, target


def prepare(
    args: argparse.Namespace,
    raw_files: Iterable[Path],
    find_sets: Callable[[Path], Sets],
    treatment: Treatment,
    *,
    name: str,
    split: str | None = None,
) -> None:
    """Make the folder `args.out` of a data set, unless it is there.

    Args:
        args: the options of `make_parser`.
        raw_files: all files that `find_sets` reads.
        find_sets: called with a folder for what it has to unpack; returns the corpora of each set.
        treatment: what is done to the text, besides joint BPE of `args.bpe` merges.
        name: of the data set, and of its experiment, whose command is printed at the end.
        split: which of its splits this is, if there are several.

    Raises:
        InputError: if a raw file cannot be used.
    """

    def write(folder: Path) -> Inputs:
        sets = {
            part: write_set(corpora, args.limit, folder / part)
            for part, corpora in find_sets(folder).items()
        }
        if args.limit is not None:
            print(f"--limit: at most {args.limit} pairs of each set are kept.", flush=True)
        return Inputs(sets, {})

    treatment = treatment._replace(joined=True, subwords="bpe", size=args.bpe)
    preparation.prepare(args, raw_files, write, treatment, name=name, split=split)
