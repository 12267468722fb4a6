"""The table of compare_runs.sh: results of runs that differ in nothing but the seed, put together.

Usage: _compare_runs.py SUBSET CSV RUN...
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from _published import published

COLUMNS = ("data", "split", "model", "first run", "seeds", "each", "mean", "deviation", "paper")
OF_ONE_RUN = ("--seed", "--save-dir")  # options that seeds of the same settings differ in


class Result(NamedTuple):
    """Of one run.

    Attributes:
        settings: the command of its training, but for what is its own.
        about: data set, split and model.
        seed: of its training.
        percent: right answers on all sentences of a set.
        paper: the paper's number, if it has one.
    """

    settings: tuple[str, ...]
    about: tuple[str, str, str]
    seed: int
    percent: float
    paper: float | None


def read_run(run: Path, subset: str) -> Result:
    """The result of a run that its evaluate script has evaluated.

    Raises:
        ValueError: if it is no such run.
    """
    if not (run / "command").is_file():
        raise ValueError(f"{run} is not the folder of a run: give folders that train_*.sh made.")
    data = Path((run / "data").read_text(encoding="utf-8").strip())
    if not (data / "prepared.json").is_file():
        raise ValueError(
            f"{run} was trained on {data}, which is no longer there: prepare it again."
        )
    # The result on all sentences does not depend on how they were grouped.
    tables = [
        path for path in sorted(run.glob(f"{subset}*.csv"))
        if re.fullmatch(rf"{re.escape(subset)}(-by-\w+)?", path.stem)
    ]  # fmt: skip
    if not tables:
        raise ValueError(
            f"{run} has no result on `{subset}`: run its evaluate_*.sh"
            + ("" if subset == "test" else f" with --subset {subset}")
            + " first."
        )
    with open(tables[0], newline="", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["group"] == "all")
    words = shlex.split((run / "command").read_text(encoding="utf-8"))
    model = (run / "model").read_text(encoding="utf-8").strip()
    stamp = json.loads((data / "prepared.json").read_text(encoding="utf-8"))
    return Result(
        settings=tuple(
            word for before, word in zip(["", *words], words) if before not in OF_ONE_RUN
        ),
        about=(stamp.get("dataset", data.name), stamp.get("split", ""), model),
        seed=int(words[words.index("--seed") + 1]),
        percent=float(row["percent"]),
        paper=published(data, subset, model, "").get("all"),
    )


def table(runs: list[Path], subset: str) -> list[dict[str, str]]:
    """A row for all runs with the same settings, in the order in which they are first named."""
    found: defaultdict[tuple[tuple[str, ...], ...], dict[Path, Result]] = defaultdict(dict)
    for run in runs:
        result = read_run(run, subset)
        found[result.about, result.settings][run.resolve()] = result
    rows = []
    for by_folder in found.values():
        results = sorted(by_folder.values(), key=lambda result: result.seed)
        each = [result.percent for result in results]
        paper = results[0].paper
        cells = (
            *results[0].about,
            next(iter(by_folder)).name,
            " ".join(str(result.seed) for result in results),
            " ".join(f"{percent:.2f}" for percent in each),
            f"{statistics.fmean(each):.2f}",
            f"{statistics.stdev(each):.2f}" if len(each) > 1 else "",
            "" if paper is None else f"{paper:g}",
        )
        rows.append(dict(zip(COLUMNS, cells)))
    return rows


def main() -> None:
    subset, path, *runs = sys.argv[1:]
    try:
        rows = table([Path(run) for run in runs], subset)
    except ValueError as error:
        sys.exit(str(error))
    lines = [COLUMNS, *(tuple(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    if path:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
