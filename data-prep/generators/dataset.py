"""What the data sets share: examples, options, counts, and the way to a folder for fairseq.

Each data set is one program that turns raw files or a grammar into *parts*, named lists of
examples. `train`, `valid` and `test` are always there; any further part becomes an evaluation set
of its name. `prepare` hands them all to the program behind `parallel_text.sh`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence

import text_files
from text_files import InputError, Parser

PARALLEL_TEXT = Path(__file__).with_name("parallel_text.py")
SPLITS = ("train", "valid", "test")
SEED = 1


class Example(NamedTuple):
    """One pair, words separated by one space, with its value in each column of the data set."""

    source: str
    target: str
    values: tuple[str, ...] = ()


Parts = Dict[str, List[Example]]


def make_parser(program: str, description: str, raw: str, epilog: str = "") -> Parser:
    """Return a parser with the options that every data set has.

    Args:
        program: name of the script that the user called.
        description, epilog: what `--help` says before and after the options.
        raw: help text of `--raw`.
    """
    parser = Parser(program, description, epilog)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--raw", type=Path, metavar="DIR", help=raw)
    parser.add_argument(
        "--limit", type=positive, metavar="N",
        help="for a quick look, N random examples of each part; other sizes than the published "
        "ones are then reported, not refused",
    )  # fmt: skip
    return parser


def positive(text: str) -> int:
    """Read a whole number from 1 on, for an option.

    Raises:
        argparse.ArgumentTypeError: if it is none.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, but is `{text}`")
    return int(text)


def keyed_order(examples: Iterable[Example], purpose: str) -> list[Example]:
    """Return the examples in a random order that is the same on every machine and Python version.

    The order is that of a hash of seed, purpose and source, so it does not depend on the order in
    which the examples come, and two purposes give independent orders.
    """

    def key(example: Example) -> bytes:
        return hashlib.sha256(f"{SEED} {purpose} {example.source}".encode()).digest()

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
        found, published: sizes by part; a part that only one of them has is not compared.
        limit: value of `--limit`; with one, a difference is printed and not refused.

    Raises:
        InputError: if a size differs, without a limit.
    """
    expected = {part: count for part, count in published.items() if part in found}
    compared = {part: found[part] for part in expected}
    if compared == expected:
        print(f"{name}: {sizes(found)}; the published sizes agree.")
    elif limit is None:
        raise InputError(
            f"{name} has {sizes(compared)}, but was published with {sizes(expected)}: "
            "the files are incomplete or altered."
        )
    else:
        print(f"{name}: {sizes(found)}; published were {sizes(expected)}.")


def cut(parts: Parts, limit: int | None, *, labels: bool = False) -> Parts:
    """Keep `limit` random examples of each part; all of them where it is None.

    Args:
        labels: the targets are labels, none of which may be evaluated without being trained:
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


def take_validation(parts: Parts, size: int) -> Parts:
    """Take `size` random examples out of train for validation, where there is no valid yet.

    An example that train repeats is never taken: there would be nothing left to learn it from.

    Raises:
        InputError: if `size` is below 1 or leaves nothing to train on.
    """
    if "valid" in parts:
        return parts
    train = parts["train"]
    times = Counter(train)
    candidates = [example for example in train if times[example] == 1]
    if not 1 <= size < len(candidates):
        raise InputError(
            f"--valid-size must be between 1 and {len(candidates) - 1} for this split, "
            f"but is {size}."
        )
    valid = set(keyed_order(candidates, "validation")[:size])
    kept = [example for example in train if example not in valid]
    return {**parts, "train": kept, "valid": [example for example in train if example in valid]}


def write_text(folder: Path, parts: Parts, columns: Sequence[str]) -> list[str]:
    """Write `<part>.src`, `<part>.tgt` and, but for train, `<part>.<column>` into a folder.

    Returns:
        the options by which `parallel_text.sh` finds all these files.
    """
    options: list[str] = []
    for name, part in parts.items():
        files = [str(folder / f"{name}.{side}") for side in ("src", "tgt")]
        options += [f"--{name}", *files] if name in SPLITS else ["--also", name, *files]
        for field, file in enumerate(files):
            with open(file, "w", encoding="utf-8") as stream:
                stream.writelines(f"{example[field]}\n" for example in part)
        for index, column in enumerate(columns if name != "train" else ()):
            path = folder / f"{name}.{column}"
            with open(path, "w", encoding="utf-8") as stream:
                stream.writelines(f"{example.values[index]}\n" for example in part)
            options += ["--column", name, column, str(path)]
    return options


def identity(name: str, split: str | None, limit: int | None) -> dict[str, Any]:
    """Return the keys of the stamp by which a prepared folder is known (see `prepared_folder`)."""
    about: dict[str, Any] = {"dataset": name}
    if split is not None:
        about["split"] = split
    if limit is not None:
        about["limited"] = True
    return about


def prepare(
    args: argparse.Namespace,
    parts: Parts,
    columns: Sequence[str] = (),
    *,
    name: str,
    split: str | None = None,
    task: str = "translation",
    subsets: Mapping[str, Callable[[Example], bool]] | None = None,
) -> None:
    """Binarise the parts into `args.out`; ends the program if that fails.

    Args:
        args: the options of `make_parser`, of which `out` and `limit` are used.
        parts: examples by part.
        columns: names of the examples' values, which are kept for evaluation beside all but train.
        name: of the data set, and of its training script, whose call is printed at the end.
        split: which of its splits it is, where there are several.
        task: fairseq task of the folder.
        subsets: further sets by name, and which examples of train are in them too.
    """
    parts = cut(parts, args.limit, labels=task == "classification_as_translation")
    for subset, belongs in (subsets or {}).items():
        parts[subset] = [example for example in parts["train"] if belongs(example)]
    command = ["bash", f"scripts/train_{name}.sh", "--data", str(args.out.resolve())]
    about = json.dumps(identity(name, split, args.limit))
    with tempfile.TemporaryDirectory(prefix=f"{args.out.name}-text-") as folder:
        options = write_text(Path(folder), parts, columns)
        options += ["--out", str(args.out), "--task", task, "--train-with", shlex.join(command)]
        options += ["--identity", about]
        sys.stdout.flush()
        with subprocess.Popen([sys.executable, str(PARALLEL_TEXT), *options]) as process:
            try:
                status = process.wait()
            except BaseException:
                process.terminate()  # it removes what it has begun
                process.wait()
                raise
    if status != 0:
        sys.exit(status)


def run(main: Callable[[], None], program: str) -> None:
    """`text_files.run`, for a program that has a temporary folder to remove when it is killed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    text_files.run(main, program)
