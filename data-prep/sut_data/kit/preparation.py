"""Common code of all data sets: options, and the way to a folder for fairseq.

The raw files and the options of a data set, and the code here, are its *recipe*. If the stamp of
an earlier result has the same one, nothing is read, generated or checked again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import sut_data
from sut_data.command_line import Parser, flags, given, whole_number
from sut_data.folders.making import check_fairseq, make_folder, report_current
from sut_data.folders.prepared import hidden_folder, is_whole, read_stamp, remove_leftovers
from sut_data.folders.report import report
from sut_data.folders.training import OF_EXPERIMENT, gpus_here, script_command
from sut_data.text.pairs import Inputs, checksum
from sut_data.text.treatment import Counts, Treatment
from sut_data.waiting import Stopwatch, waiting

# This code decides how raw files become text. (`folders.making.LAYOUT` covers the rest.)
CODE = sorted(Path(sut_data.__file__).parent.rglob("*.py"))
# Options that do not count; for paths, the contents of the files count instead.
WITHOUT_EFFECT = ("out", "raw", "processes", "parser")
# Options that do not make it another data set: some choose its split, which the stamp names, a seed
# draws other examples of the same kind, and subwords do not change the text. For the user's own
# files the stamp lists no options.
USUAL = (
    *WITHOUT_EFFECT,
    *("limit", "split", "direction", "cutoff", "reverse", "seed", "bpe"),
    *("train", "valid", "test"),
)


def make_parser(
    program: str, description: str, raw: str | None, limit: str, epilog: str = ""
) -> Parser:
    """Return a parser with the options that every data set has.

    Args:
        program: the command's name for its messages.
        description, epilog: what `--help` says before and after the options.
        raw, limit: help texts of `--raw` and `--limit`; without the first there is no `--raw`.
    """
    parser = Parser(program, description, epilog, examples=_examples(program, raw is not None))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    if raw is not None:
        parser.add_argument("--raw", type=Path, metavar="DIR", help=raw)
    parser.add_argument(
        "--limit", type=whole_number, metavar="N", help=f"for a quick look, {limit}"
    )
    parser.set_defaults(parser=parser)  # which knows the other defaults
    return parser


def _examples(program: str, takes_files: bool) -> list[str]:
    """Two command lines: one for the whole data set, and a quicker one."""
    call = typed(program)
    name = program.removesuffix(".sh").split()[-1]
    quick = f"--raw raw/{name}" if takes_files else "--limit 500"
    return [f"{call} --out data-bin/{name}", f"{call} {quick} --out data-bin/{name}"]


def typed(program: str) -> str:
    """Return a program as the user types it: a script of a checkout with its folder."""
    return f"bash data-prep/{program}" if program.endswith(".sh") else program


def refuse_options(args: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Exit with a command-line error if options are given that would have no effect.

    Args:
        args: the options of `make_parser`, and the data set's own.
        names: of those options.
        reason: beside which option, and why; the rest of the sentence.
    """
    if found := given(args, names, args.parser):
        args.parser.error(f"leave out {flags(found)} {reason}")


def recipe(name: str, args: argparse.Namespace, raw_files: Iterable[Path]) -> str:
    """Return a checksum of everything that a data set is made from: files, options and programs."""
    options = {
        key: value
        for key, value in vars(args).items()
        if key not in WITHOUT_EFFECT and not isinstance(value, Path)
    }
    with waiting("computing checksums"):
        files = [(path.name, checksum(path)) for path in (*raw_files, *CODE)]
    content = json.dumps([name, options, files], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def own_options(args: argparse.Namespace) -> list[str]:
    """Return the options that change the data set, such as `--test-depths 7`."""
    found = []
    for name, value in vars(args).items():
        if name in USUAL or isinstance(value, Path) or value == args.parser.get_default(name):
            continue
        values = value if isinstance(value, list) else [] if value is True else [value]
        found.append(" ".join([f"--{name.replace('_', '-')}", *map(str, values)]))
    return found


def prepare(
    args: argparse.Namespace,
    raw_files: Iterable[Path],
    write_text: Callable[[Path], Inputs],
    treatment: Treatment,
    *,
    name: str,
    split: str | None = None,
    experiment: str | None = None,
    of_train: Collection[str] = (),
) -> None:
    """Make the folder `args.out` of a data set, unless it is there, and print how to train on it.

    Args:
        args: the options of `make_parser`, and the data set's own.
        raw_files: all files that `write_text` reads.
        write_text: writes the text of the data set into an empty folder.
        treatment: what is done to the text.
        name: of the data set.
        split: which of its splits this is, if there are several.
        experiment: the one that trains on it; None: that of the data set's name.
        of_train: its sets that repeat a part of train.

    Raises:
        InputError: if an option or a file cannot be used.
    """
    check_fairseq()
    watch = Stopwatch()
    out = args.out.resolve()
    notes: dict[str, Any] = {"dataset": name, "recipe": recipe(name, args, raw_files)}
    if split is not None:
        notes["split"] = split
    if args.limit is not None:
        notes["limited"] = True
    if own_options(args):
        notes["options"] = own_options(args)
    stamp = read_stamp(out)
    if stamp and stamp.get("recipe") == notes["recipe"] and is_whole(out, stamp):
        remove_leftovers(out, "text", "partial", "old")
        report_current(out)
    else:
        with hidden_folder(out, "text") as folder:
            stamp = make_folder(out, write_text(folder), treatment, notes, watch)
    counts = {part: Counts(*row) for part, row in stamp["counts"].items()}
    report(out, counts, of_train=of_train)
    if OF_EXPERIMENT not in os.environ:
        print(script_command(experiment or name, out, counts, gpus_here()))
