"""Prints the quick start's table from the JSON results in a run's folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sut_data.tables import table


def main() -> None:
    run, thresholds = Path(sys.argv[1]), sys.argv[2:]
    header = (
        *("alpha_threshold", "exact match", "encoder depth", "decoder depth"),
        *("skipped", "MACs per sentence"),
    )
    rows: list[tuple[str, ...]] = [header]
    for threshold in thresholds:
        match = json.loads((run / f"threshold-{threshold}.exact_match.json").read_text())
        macs = json.loads((run / f"threshold-{threshold}.macs.json").read_text())
        rows.append(
            (
                threshold,
                f"{match['exact_match']:.2f} % of {match['scored']:,}",
                *(f"{macs['halting'][stack]['depth']:.2f}" for stack in ("encoder", "decoder")),
                f"{100 * macs['skipped']:.1f} %",
                f"{macs['macs_full'] / 1e6:.2f} M",
            )
        )
    print(table(rows, ">"))
    print(
        "Exact match is that of greedy search. Depth (steps per token), the share of block\n"
        "computations skipped and MACs (attention products included) are those of the model run\n"
        "on the reference targets."
    )


if __name__ == "__main__":
    main()
