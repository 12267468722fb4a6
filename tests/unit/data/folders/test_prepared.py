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
        ({"counts": {"train": None}}, "counts of train must be a list of whole numbers"),
        ({"counts": {"test": [1, "x"]}}, "counts of test must be a list of whole numbers"),
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
