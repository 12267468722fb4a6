"""Shows a progress bar for the JSON log of fairseq-train on standard input."""

from __future__ import annotations

import argparse
import json
import sys

from tqdm import tqdm

SHOWN = {"nll_loss": "nll", "encoder_depth": "enc. depth", "decoder_depth": "dec. depth"}
VALIDATED = {"valid_exact_match": "exact match", "valid_accuracy": "accuracy"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, help="number of updates, if it is known")
    total = parser.parse_args().total
    shown: dict[str, str] = {}
    with tqdm(total=total, unit="update", dynamic_ncols=True) as bar:
        for line in sys.stdin:
            # Log lines have a prefix before the JSON object; all else is in the log file.
            start = line.find('{"epoch"')
            if start < 0:
                continue
            try:
                entry = json.loads(line[start:])
            except ValueError:
                continue
            if "num_updates" in entry:
                bar.update(int(entry["num_updates"]) - bar.n)
                shown |= {name: entry[key] for key, name in SHOWN.items() if key in entry}
            shown |= {name: entry[key] for key, name in VALIDATED.items() if key in entry}
            bar.set_postfix(shown)


if __name__ == "__main__":
    main()
