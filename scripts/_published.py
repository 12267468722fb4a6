"""Prints the paper's numbers for a run, as GROUP=NUMBER, in per cent; nothing where there are none.

Usage: _published.py RUN DATA SUBSET BY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# By data set, split and model: numbers for groups of a column, or of all sentences; those of the
# first tables are of Tan et al. (2023), Tables 4, 5, 8 and 9.
_LOGICAL: dict[str, list[float]] = {
    "sut": [98, 97, 94, 90, 88, 81],
    "transformer": [51, 52, 51, 51, 51, 48],
}
_HELD_OUT: dict[str, dict[str, float]] = {
    "sut": {"A": 97, "B": 94, "C": 52},
    "transformer": {"A": 53, "B": 51, "C": 51},
}
_ALL: dict[tuple[str, str], dict[str, float]] = {
    ("cfq", "mcd1"): {"ut": 72.4, "ut_fixed": 71.0, "ut_t5": 68.3},
    ("cfq", "mcd2"): {"ut": 51.1, "ut_fixed": 48.6, "ut_t5": 43.1},
    ("cfq", "mcd3"): {"ut": 51.7, "ut_fixed": 51.3, "ut_t5": 45.7},
    ("listops", "lra"): {"sut": 49.23, "transformer": 36.37},
    ("scan", "addprim_turn_left"): {"ut": 100, "transformer": 20},
    ("scan", "addprim_jump"): {"ut": 0, "transformer": 7},
    ("scan", "length"): {"ut": 7, "transformer": 0},
    ("pcfg", "systematicity"): {"ut": 87, "transformer": 76},
    ("pcfg", "productivity"): {"ut": 62, "transformer": 56},
    # Csordas et al. (2022), Tables 1 to 3, and Table 6 for ACT.
    ("ctl", "forward"): {
        **{"ndr": 100, "lstm": 100, "bilstm": 100, "dnc": 100, "transformer": 13, "rel": 23},
        **{"rel_gate": 99, "abs_rel_gate": 98, "geometric": 16},
        **{"transformer_act": 12, "rel_act": 99, "geometric_act": 97},
        **{"transformer_act_ut": 12, "rel_act_ut": 92, "geometric_act_ut": 72},
    },
    ("ctl", "backward"): {
        **{"ndr": 100, "lstm": 22, "bilstm": 100, "dnc": 18, "transformer": 12, "rel": 13},
        **{"rel_gate": 19, "abs_rel_gate": 98, "geometric": 15},
        **{"transformer_act": 12, "rel_act": 13, "geometric_act": 45},
        **{"transformer_act_ut": 11, "rel_act_ut": 12, "geometric_act_ut": 44},
    },
    ("arithmetic", ""): {
        **{"ndr": 98, "lstm": 74, "bilstm": 82, "transformer": 47, "rel": 77, "abs_rel_gate": 80},
    },
    ("listops_dependency", ""): {
        **{"ndr": 99, "lstm": 71, "bilstm": 57, "transformer": 74, "rel": 79, "abs_rel_gate": 90},
    },
}


def published(dataset: str, split: str, model: str, by: str) -> dict[str, float]:
    """Numbers by group; `all` stands for all sentences."""
    if dataset == "logical_inference" and model in _LOGICAL:
        if split == "full" and by == "operators":
            return {str(number): one for number, one in enumerate(_LOGICAL[model], start=7)}
        if split == by and by in "ABC":
            return {"yes": _HELD_OUT[model][by]}
    numbers = _ALL.get((dataset, split), {})
    return {"all": numbers[model]} if model in numbers else {}


def main() -> None:
    run, data, subset, by = sys.argv[1:]
    stamp = json.loads(Path(data, "prepared.json").read_text(encoding="utf-8"))
    if subset == "test" and not stamp.get("limited"):
        model = Path(run, "model").read_text(encoding="utf-8").strip()
        found = published(stamp.get("dataset", ""), stamp.get("split", ""), model, by)
        print(*(f"{group}={number:g}" for group, number in found.items()))


if __name__ == "__main__":
    main()
