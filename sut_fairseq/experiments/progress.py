"""A progress bar from the JSON log of fairseq-train.

As a program it reads the log from standard input, and needs neither torch nor fairseq:
`fairseq-train ... | python progress.py --total 1600`.
"""

from __future__ import annotations

import argparse
import json
import sys

from tqdm import tqdm

SHOWN = {"nll_loss": "nll", "encoder_depth": "enc. depth", "decoder_depth": "dec. depth"}
VALIDATED = {"valid_exact_match": "exact match", "valid_accuracy": "accuracy"}


class Progress:
    """The progress bar of a training; hidden unless standard error is a terminal.

    Args:
        total: number of updates, if it is known.
    """

    def __init__(self, total: int | None) -> None:
        self._bar = tqdm(total=total, unit="update", dynamic_ncols=True, disable=None)
        self._shown: dict[str, str] = {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def read(self, line: str) -> None:
        """Update the bar from a line of the log; lines without metrics change nothing."""
        # Log lines have a prefix before the JSON object; all else is in the log file.
        start = line.find('{"epoch"')
        if start < 0:
            return
        try:
            entry = json.loads(line[start:])
        except ValueError:
            return
        if "num_updates" in entry:
            self._bar.update(int(entry["num_updates"]) - self._bar.n)
            self._shown |= {name: entry[key] for key, name in SHOWN.items() if key in entry}
        self._shown |= {name: entry[key] for key, name in VALIDATED.items() if key in entry}
        self._bar.set_postfix(self._shown)


def main() -> None:
    """Follow the log on standard input."""
    parser = argparse.ArgumentParser(description="Show a progress bar for fairseq-train's log.")
    parser.add_argument("--total", type=int, help="number of updates, if it is known")
    with Progress(parser.parse_args().total) as progress:
        for line in sys.stdin:
            progress.read(line)


if __name__ == "__main__":
    main()
