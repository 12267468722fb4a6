"""Stamps of prepared folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sut_data.errors import InputError as DataError
from sut_data.folders.prepared import STAMP, read_stamp
from sut_fairseq.errors import InputError
from sut_fairseq.experiments.provenance import describe_data


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"files": []}, "files must be a mapping"),
        ({"also": 3}, "also must be a mapping"),
        ({"made_from": "x"}, "made_from must be a mapping"),
        ({"made_from": {"inputs": []}}, "inputs must be a mapping"),
        ({"files": {"x.bin": "9"}}, "the size of x.bin must be a whole number"),
        ({"counts": {"train": None}}, "counts of train must be 5 to 10 whole numbers"),
        ({"counts": {"train": [1] * 4 + ["x"]}}, "counts of train must be 5 to 10 whole numbers"),
        ({"counts": {"train": [1] * 4}}, "counts of train must be 5 to 10 whole numbers"),
        ({"counts": {"train": [1] * 11}}, "counts of train must be 5 to 10 whole numbers"),
    ],
)
def test_a_stamp_that_was_changed_by_hand_is_refused(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    (tmp_path / "dict.src.txt").write_text("a 1\n")
    stamp = {"files": {}, "counts": {}, "made_from": {}} | changed
    (tmp_path / STAMP).write_text(json.dumps(stamp))
    with pytest.raises(DataError, match="was not made by this program: remove it or choose"):
        read_stamp(tmp_path)
    with pytest.raises(InputError, match=rf"damaged \({named}\): make the fo"):
        describe_data(tmp_path)


def test_a_stamp_without_counts_of_train(tmp_path: Path) -> None:
    """Nothing could be said about how to train on such a folder."""
    (tmp_path / STAMP).write_text(json.dumps({"files": {}, "counts": {}, "made_from": {}}))
    with pytest.raises(DataError, match="was not made by this program: remove it or choose"):
        read_stamp(tmp_path)
