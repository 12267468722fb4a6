"""Makes the table of docs/benchmarks.md from the JSON files in docs/benchmarks.

sut-benchmark train --json > docs/benchmarks/cpu-train.json   # measure again
python scripts/benchmark_table.py                             # and bring the table up to date
python scripts/benchmark_table.py --check                     # fails if it is not
python scripts/benchmark_table.py --show docs/benchmarks/cpu-train.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
RAW = DOCS / "benchmarks"
BEGIN, END = "<!-- begin: ratios -->\n", "<!-- end: ratios -->\n"
MACHINES = {"cpu": "2 CPU cores, float32", "h100": "H100, bfloat16", "h200": "H200, bfloat16"}


class Row(NamedTuple):
    """A ratio: what it says, and which file holds it."""

    about: str
    better: str
    file: str  # of a machine: `cpu-train.json`; "file|other" where the machines differ
    ratio: str


ROWS = (
    Row("training, `sut_base` / `ut_base`: tokens per second", "high", "train", "to_ut"),
    Row(
        "training, `sut_base` / Transformer of equal MACs: tokens per second",
        *("high", "train", "to_transformer"),
    ),
    Row(
        "the same with 8,192 instead of 2,048 tokens",
        *("high", "train-8192", "to_transformer"),
    ),
    Row(
        "training, small SUT (states of 64) / Transformer of equal MACs: tokens per second",
        *("high", "train-small", "to_transformer"),
    ),
    Row(
        "beam search, `sut_base` / Transformer of equal MACs: tokens per second",
        *("high", "decode", "to_transformer"),
    ),
    Row(
        "beam search, two thirds of all steps skipped / none: time",
        *("low", "decode", "time_at_0.7"),
    ),
    Row("encoder, half of all steps skipped / none: time", "low", "halting", "time_at_0.5"),
    Row("encoder, 80 % of all steps skipped / none: time", "low", "halting", "time_at_0.8"),
    Row("experts / dense layer of equal MACs: tokens per second", "high", "experts", "to_dense"),
    Row(
        "mixture / dense attention, 256 tokens: tokens per second",
        *("high", "attention", "mixture_to_dense_256"),
    ),
    Row(
        "geometric / softmax attention, 256 tokens: time",
        *("low", "attention-geometric|attention", "geometric_to_softmax_256"),
    ),
    Row(
        "memory of a training step, 12 / 6 steps, activations recomputed",
        *("low", "memory", "memory_12_to_6_steps_checkpointed"),
    ),
)


def read(path: Path) -> dict[str, Any]:
    """Read what `sut-benchmark --json` wrote."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def cell(row: Row, machine: str) -> str:
    """A ratio with its spread, as a link to its file; empty if it was not measured."""
    for name in row.file.split("|"):
        path = RAW / f"{machine}-{name}.json"
        if not path.exists():
            continue
        document = read(path)
        if row.ratio in document["ratios"]:
            least, greatest = document["spread"][row.ratio]
            spread = f" ({least:.2f} to {greatest:.2f})" if least != greatest else ""
            link = path.relative_to(DOCS).as_posix()
            return f"[{document['ratios'][row.ratio]:.2f}]({link}){spread}"
    return ""


def markdown() -> str:
    """The table."""
    lines = [
        "| what is divided by what | better | " + " | ".join(MACHINES.values()) + " |",
        "|---|---|" + "---|" * len(MACHINES),
    ]
    for row in ROWS:
        cells = [row.about, row.better, *(cell(row, machine) for machine in MACHINES)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """The page with its table brought up to date."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"{PAGE} has lost the lines {BEGIN.strip()} and {END.strip()}: put them back.")
    return before + BEGIN + markdown() + END + after


def main() -> None:
    """Write or check the table, or show raw files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail if outdated")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="print raw files")
    arguments = parser.parse_args()
    if arguments.show:
        from sut_fairseq.cli.benchmark import text_of  # only here: it imports torch

        print("\n\n".join(text_of(read(path)) for path in arguments.show))
        return
    page = PAGE.read_text(encoding="utf-8")
    if updated(page) == page:
        return
    if arguments.check:
        sys.exit(f"the table of {PAGE} is outdated: run `python scripts/benchmark_table.py`.")
    PAGE.write_text(updated(page), encoding="utf-8")


if __name__ == "__main__":
    main()
