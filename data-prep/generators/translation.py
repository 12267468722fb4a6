"""What the translation data sets share: from their raw files to `parallel_text.sh`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Callable, Iterable, NamedTuple, Sequence

from dataset import identity
from parallel_pairs import SPLITS
from text_files import InputError, Parser, read_lines

PARALLEL_TEXT = Path(__file__).with_name("parallel_text.py")


class Corpus(NamedTuple):
    """Two aligned files; `sizes` are the numbers of lines that were published."""

    name: str
    source: Path
    target: Path
    sizes: tuple[int, ...]


def make_parser(program: str, description: str, raw: str, bpe: int, epilog: str = "") -> Parser:
    """Return a parser with the options that every translation data set has.

    Args:
        program: name of the script that the user called.
        description, epilog: what `--help` says before and after the options.
        raw: help text of `--raw`.
        bpe: default number of merges.
    """
    parser = Parser(program, description, epilog)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--raw", type=Path, metavar="DIR", help=raw)
    parser.add_argument(
        "--bpe", type=int, default=bpe, metavar="N",
        help=f"merges of the byte pair encoding of both languages together (default: {bpe})",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=int, metavar="N",
        help="for a quick look, N pairs of each set, evenly spaced",
    )  # fmt: skip
    return parser


def count_pairs(corpus: Corpus) -> int:
    """Count the pairs of a corpus, print the number and compare it with the published one.

    Raises:
        InputError: if it is another one, or the two sides differ.
    """
    found = [sum(1 for _ in read_lines(path)) for path in (corpus.source, corpus.target)]
    expected = " or ".join(f"{size:,}" for size in corpus.sizes)
    if found[0] != found[1] or found[0] not in corpus.sizes:
        raise InputError(
            f"{corpus.name} has {found[0]:,} source and {found[1]:,} target lines, but was "
            f"published with {expected}: the files are incomplete or altered."
        )
    print(f"{corpus.name}: {found[0]:,} pairs, as published.", flush=True)
    return found[0]


def write_set(corpora: Sequence[Corpus], limit: int | None, prefix: Path) -> None:
    """Write corpora one after the other to `<prefix>.src` and `<prefix>.tgt`.

    Args:
        corpora: what the set consists of; the sizes are compared with the published ones.
        limit: how many pairs to keep, evenly spaced; None for all.
        prefix: path of the two files without the suffix.
    """
    total = sum(count_pairs(corpus) for corpus in corpora)
    keep = total if limit is None else min(limit, total)
    for suffix, files in (
        ("src", [corpus.source for corpus in corpora]),
        ("tgt", [corpus.target for corpus in corpora]),
    ):
        with open(f"{prefix}.{suffix}", "w", encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(chain.from_iterable(map(read_lines, files))):
                if number * keep // total != (number + 1) * keep // total:
                    stream.write(line + "\n")


def prepare(
    args: argparse.Namespace,
    find_sets: Callable[[Path], dict[str, list[Corpus]]],
    options: Iterable[str],
    *,
    name: str,
    split: str | None = None,
) -> None:
    """Hand the sets of a data set to `parallel_text.sh`; ends the program if that fails.

    Args:
        args: the options of `make_parser`.
        find_sets: called with a folder for what it has to unpack; returns the corpora of train,
            valid, test and of any further evaluation set.
        options: of `parallel_text.sh`, besides those for files and BPE.
        name: of the data set, and of its training script, whose call is printed at the end.
        split: which of its splits it is, where there are several.

    Raises:
        InputError: if an option or a raw file cannot be used.
    """
    for option in ("bpe", "limit"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise InputError(f"--{option} must be at least 1, but is {value} instead.")
    out = args.out.resolve()
    command = shlex.join(["bash", f"scripts/train_{name}.sh", "--data", str(out)])
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the result, where there is room for it; a later run removes what a killed one leaves.
    folder = out.with_name(f".{out.name}.partial-{os.getpid()}")
    folder.mkdir()
    try:
        words = [sys.executable, str(PARALLEL_TEXT), "--out", str(out), "--train-with", command]
        words += [*options, "--bpe", str(args.bpe), "--joined"]
        words += ["--identity", json.dumps(identity(name, split, args.limit))]
        for part, corpora in find_sets(folder).items():
            write_set(corpora, args.limit, folder / part)
            words += [f"--{part}"] if part in SPLITS else ["--also", part]
            words += [str(folder / f"{part}.src"), str(folder / f"{part}.tgt")]
        if args.limit is not None:
            print(f"--limit: at most {args.limit} pairs of each set are kept.", flush=True)
        status = call(words)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if status != 0:
        sys.exit(status)


def call(words: list[str]) -> int:
    """Run a program and return its status; it is given the time to clean up when this one ends."""
    process = subprocess.Popen(words)
    try:
        return process.wait()
    except SystemExit:
        process.terminate()
        raise
    finally:
        process.wait()
