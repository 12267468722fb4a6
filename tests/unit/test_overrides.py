"""Which keys --model-overrides may have."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from sut_fairseq.cli._overrides import check_overrides
from sut_fairseq.errors import InputError

SETTINGS = dict(encoder_layers=3, alpha_threshold=0.9)


@pytest.mark.parametrize(
    "state",
    [
        {"cfg": {"model": SETTINGS}},
        {"cfg": {"model": Namespace(**SETTINGS)}},
        {"args": Namespace(**SETTINGS), "cfg": None},  # as older versions of fairseq wrote it
    ],
    ids=["cfg", "cfg of a command line", "args"],
)
def test_keys(state: dict[str, Any]) -> None:
    check_overrides({"encoder_layers": 5}, state)
    with pytest.raises(InputError, match="no option `encoder_layer`; similar ones are encoder_la"):
        check_overrides({"encoder_layer": 5}, state)
