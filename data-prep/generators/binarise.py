"""Check parallel text and binarise it with fairseq-preprocess; `parallel_text.sh` runs this.

The resulting folder holds what fairseq reads (dict.src.txt, train.src-tgt.src.bin, ...), the
sentences themselves under text/, the log, and a stamp (see `prepared_folder`): with equal inputs
and options a second run only reads the stamp.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parallel_pairs import SIDES, SPLITS, Counts, Inputs, check_files, checksum, copy_text
from prepared_folder import check_replaceable, is_current, put_in_place, read_stamp, write_stamp
from text_files import InputError, Parser, read_lines, run

PROGRAM = "parallel_text.sh"
REPOSITORY = Path(__file__).resolve().parents[2]
LOG = "fairseq-preprocess.log"
LAYOUT = 1  # part of the stamp: raise it when the form of the output changes
FAIRSEQ_DEFAULT_MAX_POSITIONS = 1024
PARALLEL_FROM = 200_000  # training pairs; below, starting workers costs more than it saves


def binarise(folder: Path, joined: bool, workers: int) -> None:
    """Run fairseq-preprocess on `<folder>/text`, writing into `folder`, its output into a log.

    Raises:
        InputError: if it fails; the end of its log goes to standard error first.
    """
    arguments = ["--source-lang", "src", "--target-lang", "tgt", "--destdir", str(folder)]
    for split in SPLITS:
        arguments += [f"--{split}pref", str(folder / "text" / split)]
    arguments += ["--workers", str(workers)] + (["--joined-dictionary"] if joined else [])
    program = "from fairseq_cli.preprocess import cli_main; cli_main()"
    with open(folder / LOG, "w", encoding="utf-8") as log:
        # cwd: a folder named fairseq where the user stands must not be taken for the package.
        status = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
        ).returncode
    if status != 0:
        tail = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        print("\n".join(tail), file=sys.stderr)
        raise InputError(
            f"fairseq-preprocess failed with status {status}; the end of its log is above."
        )
    # fairseq keeps a second, partial log of its own.
    (folder / "preprocess.log").unlink(missing_ok=True)


def binarised_length(index: Path) -> int:
    """Read from the header of a fairseq `.idx` file (memory-mapped kind) how many rows it has.

    Raises:
        InputError: if the file is absent or of another kind.
    """
    header = struct.Struct("<9sQBQ")  # magic, version, code of the number type, rows
    try:
        with open(index, "rb") as stream:
            magic, _, _, rows = header.unpack(stream.read(header.size))
    except (FileNotFoundError, struct.error):
        magic, rows = b"", 0
    if magic != b"MMIDIDX\x00\x00":
        raise InputError(f"fairseq-preprocess did not write a usable {index.name}.")
    return int(rows)


def check_binarised(folder: Path, counts: dict[str, Counts]) -> None:
    """Refuse a result that has more or fewer sentences than the text had lines.

    Raises:
        InputError: naming the first file that differs.
    """
    for split in SPLITS:
        for side in SIDES:
            rows = binarised_length(folder / f"{split}.src-tgt.{side}.idx")
            if rows != counts[split].pairs:
                raise InputError(
                    f"fairseq-preprocess wrote {rows} sentences for {split}.{side}, but the text "
                    f"has {counts[split].pairs}; nothing was put in place."
                )


def build(inputs: Inputs, made_from: dict[str, Any], out: Path) -> dict[str, Any]:
    """Make the whole folder and put it at `out`; returns its stamp."""
    started = time.monotonic()
    joined = bool(made_from["joined"])
    with put_in_place(out) as folder:
        print(f"{PROGRAM}: checking the text ...", flush=True)
        counts = copy_text(inputs, joined, folder / "text")
        workers = (os.cpu_count() or 1) if counts["train"].pairs >= PARALLEL_FROM else 1
        print(f"{PROGRAM}: binarising with fairseq-preprocess ...", flush=True)
        binarise(folder, joined, workers)
        check_binarised(folder, counts)
        stamp = write_stamp(folder, made_from, counts)
    print(f"{PROGRAM}: {out} is ready ({time.monotonic() - started:.1f} s; log: {LOG} in it).")
    return stamp


def vocabulary_size(dictionary: Path) -> int:
    """Count the entries of a fairseq dictionary, its four special symbols included."""
    return sum(1 for _ in read_lines(dictionary)) + 4


def report(out: Path, counts: dict[str, Counts]) -> None:
    """Print the counts of every split and the vocabulary sizes."""
    print(f"{'split':<6}{'pairs':>10}{'longest src':>13}{'longest tgt':>13}{'unknown words':>21}")
    for split in SPLITS:
        row = counts[split]
        unknown = f"{row.unknown_src} src, {row.unknown_tgt} tgt"
        print(f"{split:<6}{row.pairs:>10}{row.longest_src:>13}{row.longest_tgt:>13}{unknown:>21}")
    sizes = [vocabulary_size(out / f"dict.{side}.txt") for side in SIDES]
    print(f"vocabulary: {sizes[0]} src, {sizes[1]} tgt")


def training_command(out: Path, counts: dict[str, Counts], joined: bool, arch: str) -> str:
    """Return a `fairseq-train` command, over several lines, that suits the folder."""
    installed = Path(sys.executable).with_name("fairseq-train")
    on_path = shutil.which("fairseq-train")
    program = str(installed) if on_path is None and installed.exists() else "fairseq-train"
    lines = [
        [program, str(out)],
        ["--user-dir", str(REPOSITORY / "sut_fairseq"), "--arch", arch],
        ["--criterion", "cross_entropy_with_auxiliary"],
        ["--label-smoothing", "0.1", "--mutual-information-weight", "0.001"],
        ["--expected-depth-weight", "0.0001"],
        ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9"],
        ["--clip-norm", "1.0", "--lr", "0.0007"],
        ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000"],
        ["--max-tokens", "4096", "--max-update", "100000"],
        ["--required-batch-size-multiple", "1", "--best-checkpoint-metric", "nll_loss"],
        ["--save-dir", f"checkpoints/{out.name}"],
    ]
    # An architecture may share what two dictionaries cannot, or not share what one could.
    lines[1].append("--share-all-embeddings" if joined else "--separate-embeddings")
    for option, longest in (
        ("--max-source-positions", max(row.longest_src for row in counts.values()) + 1),
        ("--max-target-positions", max(row.longest_tgt for row in counts.values()) + 1),
    ):
        if longest > FAIRSEQ_DEFAULT_MAX_POSITIONS:
            lines.append([option, str(longest)])
    return " \\\n    ".join(" ".join(shlex.quote(word) for word in line) for line in lines)


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
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--joined", action="store_true", help="one vocabulary for both languages instead of two"
    )
    parser.add_argument(
        "--arch", default="sut_base", metavar="NAME",
        help="architecture in the training command printed at the end (default: sut_base)",
    )  # fmt: skip
    return parser


def main() -> None:
    """Check, reuse or build, and report."""
    args = make_parser().parse_args()
    inputs = {
        f"{split}.{side}": path
        for split in SPLITS
        for side, path in zip(SIDES, getattr(args, split))
    }
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
        "inputs": {name: checksum(path) for name, path in inputs.items()},
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
    print("Train on it with:\n  " + training_command(out, counts, args.joined, args.arch))


if __name__ == "__main__":
    # A polite kill cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run(main, PROGRAM)
