"""The papers' numbers beside a run: printed as GROUP=NUMBER, in per cent; nothing without any.

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
_BASELINES = ("ndr", "lstm", "bilstm", "transformer", "rel", "abs_rel_gate")
_CTL_ONLY = (
    *("dnc", "rel_gate", "geometric", "transformer_act", "rel_act", "geometric_act"),
    *("transformer_act_ut", "rel_act_ut", "geometric_act_ut"),
)
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
        **dict(zip(_BASELINES, (100, 100, 100, 13, 23, 98))),
        **dict(zip(_CTL_ONLY, (100, 99, 16, 12, 99, 97, 12, 92, 72))),
    },
    ("ctl", "backward"): {
        **dict(zip(_BASELINES, (100, 22, 100, 12, 13, 98))),
        **dict(zip(_CTL_ONLY, (18, 19, 15, 12, 13, 45, 11, 12, 44))),
    },
    ("arithmetic", ""): dict(zip(_BASELINES, (98, 74, 82, 47, 77, 80))),
    ("listops_dependency", ""): dict(zip(_BASELINES, (99, 71, 57, 74, 79, 90))),
}
# The same tables, on sequences like those of training; these are in `valid`.
_LIKE_TRAINING: dict[tuple[str, str], dict[str, float]] = {
    ("ctl", "forward"): {
        **dict.fromkeys((*_BASELINES, *_CTL_ONLY), 100),
        "geometric": 96,
        "geometric_act_ut": 96,
    },
    ("ctl", "backward"): {
        **dict.fromkeys((*_BASELINES, *_CTL_ONLY), 100),
        "lstm": 59,
        "dnc": 57,
        "transformer": 82,
        "geometric": 93,
    },
    ("arithmetic", ""): dict(zip(_BASELINES, (100, 99, 98, 98, 100, 100))),
    ("listops_dependency", ""): dict(zip(_BASELINES, (100, 99, 100, 98, 98, 100))),
}


def published(data: Path, subset: str, model: str, by: str) -> dict[str, float]:
    """Numbers by group; `all` stands for all sentences.

    Args:
        data: a prepared folder.
        subset: one of its sets.
        model: what `--model` calls it.
        by: the column that makes groups.
    """
    stamp = json.loads((data / "prepared.json").read_text(encoding="utf-8"))
    dataset, split = stamp.get("dataset", ""), stamp.get("split", "")
    if stamp.get("limited") or subset not in ("test", "valid"):
        return {}
    if subset == "test" and dataset == "logical_inference" and model in _LOGICAL:
        if split == "full" and by == "operators":
            return {str(number): one for number, one in enumerate(_LOGICAL[model], start=7)}
        if split == by and by in "ABC":
            return {"yes": _HELD_OUT[model][by]}
    numbers = (_ALL if subset == "test" else _LIKE_TRAINING).get((dataset, split), {})
    return {"all": numbers[model]} if model in numbers else {}


def main() -> None:
    run, data, subset, by = sys.argv[1:]
    model = Path(run, "model").read_text(encoding="utf-8").strip()
    found = published(Path(data), subset, model, by)
    print(*(f"{group}={number:g}" for group, number in found.items()))


if __name__ == "__main__":
    main()
