"""Check parallel text and make a folder of it that fairseq reads; `parallel_text.sh` runs this.

The resulting folder holds what fairseq reads (dict.src.txt, train.src-tgt.src.bin, ...), the
sentences themselves and the columns under text/, the log, and a stamp (see `prepared_folder`):
with equal inputs and options a second run only reads the stamp.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from binarise import LOG, binarise, check_binarised
from parallel_pairs import SIDES, SPLITS, Counts, Inputs, check_files, checksum, copy_text
from prepared_folder import check_replaceable, is_current, put_in_place, read_stamp, write_stamp
from text_files import InputError, Parser, run
from training_command import DEFAULT_TASK, report, training_command

PROGRAM = "parallel_text.sh"
LAYOUT = 2  # part of the stamp: raise it when the form of the output changes
PARALLEL_FROM = 200_000  # training pairs; below, starting workers costs more than it saves


def build(inputs: Inputs, made_from: dict[str, Any], out: Path) -> dict[str, Any]:
    """Make the whole folder and put it at `out`; returns its stamp."""
    started = time.monotonic()
    joined = bool(made_from["joined"])
    with put_in_place(out) as folder:
        print(f"{PROGRAM}: checking the text ...", flush=True)
        counts = copy_text(inputs, joined, folder / "text")
        workers = (os.cpu_count() or 1) if counts["train"].pairs >= PARALLEL_FROM else 1
        print(f"{PROGRAM}: binarising with fairseq-preprocess ...", flush=True)
        binarise(folder, counts, joined, workers)
        check_binarised(folder, counts)
        stamp = write_stamp(folder, made_from, counts)
    print(f"{PROGRAM}: {out} is ready ({time.monotonic() - started:.1f} s; log: {LOG} in it).")
    return stamp


def make_parser() -> Parser:
    """Return the command line of `parallel_text.sh`."""
    parser = Parser(
        PROGRAM,
        "Binarise parallel text for fairseq, whole words as they stand between spaces.\n"
        "Line N of a source file belongs to line N of its target file; plain or .gz, UTF-8.",
        "Nothing appears at --out until everything is done and counted. A second run with the same "
        "inputs\nand options reuses the folder; anything else rebuilds it.",
    )
    for split in SPLITS:
        parser.add_argument(
            f"--{split}", nargs=2, type=Path, required=True, metavar=("SRC", "TGT"),
            help=f"source and target file of the {split} split",
        )  # fmt: skip
    parser.add_argument(
        "--also", nargs=3, action="append", default=[], metavar=("NAME", "SRC", "TGT"),
        help="a further evaluation set, for `fairseq-generate --gen-subset NAME`; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--column", nargs=3, action="append", default=[], metavar=("SPLIT", "NAME", "FILE"),
        help="one value for each pair of SPLIT, kept as text/SPLIT.NAME, to report scores by "
        "group; repeatable",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--joined", action="store_true", help="one vocabulary for both languages instead of two"
    )
    command = parser.add_argument_group("the training command printed at the end")
    command.add_argument(
        "--arch", default="sut_base", metavar="NAME", help="its architecture (default: sut_base)"
    )
    command.add_argument(
        "--task", default=DEFAULT_TASK, metavar="NAME", help=f"its task (default: {DEFAULT_TASK})"
    )
    command.add_argument(
        "--train-with", metavar="COMMAND", help="print this command instead, as it is given"
    )
    return parser


def read_inputs(args: argparse.Namespace) -> Inputs:
    """Collect the files of a command line.

    Raises:
        InputError: if a name given to --also or --column cannot be used, or is used twice.
    """
    pairs = {split: tuple(getattr(args, split)) for split in SPLITS}
    for name, src, tgt in args.also:
        check_name("--also", name)
        # fairseq adds `train1` to the training data, and refuses to train beside a `valid1`.
        if name.startswith(("train", "valid")):
            raise InputError(
                f"--also {name}: fairseq takes sets whose names begin with train or valid for "
                "parts of those splits; choose another name."
            )
        if name in pairs:
            raise InputError(f"--also {name}: there is a set of that name; choose another one.")
        pairs[name] = (Path(src), Path(tgt))
    columns: dict[tuple[str, str], Path] = {}
    for split, name, path in args.column:
        check_name("--column", name)
        if split not in pairs:
            raise InputError(
                f"--column {split}: there is no such set; those given are {', '.join(pairs)}."
            )
        if name in SIDES or (split, name) in columns:
            raise InputError(
                f"--column {split} {name}: that set has a {name} already; choose another name."
            )
        columns[split, name] = Path(path)
    return Inputs(pairs, columns)


def check_name(option: str, name: str) -> None:
    """Refuse a name that could not be part of a file's name, or that fairseq would cut.

    Raises:
        InputError: saying what a name may hold.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise InputError(f"{option} `{name}`: a name may hold letters, digits, _ and - only.")


def main() -> None:
    """Check, reuse or build, and report."""
    args = make_parser().parse_args()
    inputs = read_inputs(args)
    out: Path = args.out.resolve()
    check_files(inputs)
    if find_spec("fairseq") is None:
        raise InputError(
            f"fairseq is not installed for {sys.executable}: run `pip install .` in the "
            "repository, or activate the environment that has it."
        )
    made_from = {
        "layout": LAYOUT,
        "joined": args.joined,
        "inputs": {name: checksum(path) for name, path in inputs.files().items()},
    }
    stamp = read_stamp(out)
    if stamp and is_current(out, stamp, made_from):
        print(f"{PROGRAM}: {out} is up to date; nothing to do.")
    else:
        if stamp:
            check_replaceable(out, stamp)
        stamp = build(inputs, made_from, out)
    counts = {split: Counts(*row) for split, row in stamp["counts"].items()}
    report(out, counts)
    command = args.train_with or training_command(out, counts, args.joined, args.arch, args.task)
    print("Train on it with:\n  " + command)


if __name__ == "__main__":
    # A polite kill cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run(main, PROGRAM)
