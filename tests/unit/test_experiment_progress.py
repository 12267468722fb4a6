"""The bar of a training, read from its log."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sut_fairseq.experiments.progress import Progress

LOG = """\
2026-01-01 | INFO | fairseq.trainer | begin training epoch 1
2026-01-01 | INFO | train_inner | {"epoch": 1, "nll_loss": "2.5", "num_updates": "20"}
2026-01-01 | INFO | valid | {"epoch": 1, "valid_exact_match": "12.5", "valid_num_updates": "20"}
2026-01-01 | INFO | train_inner | {"epoch": 1, cut off
"""


class Terminal(io.StringIO):
    """Standard error, a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_shows_it(terminal: bool, monkeypatch: Any) -> None:
    shown = Terminal(terminal)
    monkeypatch.setattr("sys.stderr", shown)
    with Progress(80) as progress:
        for line in LOG.splitlines(keepends=True):
            progress.read(line)
    last = shown.getvalue().rpartition("\r")[2]
    if terminal:
        assert "25%" in last and "20/80" in last and "nll=2.5, exact match=12.5" in last
    else:
        assert shown.getvalue() == ""
