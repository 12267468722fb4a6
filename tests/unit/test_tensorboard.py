"""A missing TensorBoard is reported once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fairseq.logging import progress_bar

from sut_fairseq._tensorboard import warn_of_tensorboard_once


def test_one_warning_for_all_progress_bars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress_bar, "SummaryWriter", None)
    logger = logging.getLogger(progress_bar.__name__)
    filters = list(logger.filters)
    warn_of_tensorboard_once.cache_clear()
    warn_of_tensorboard_once()
    warn_of_tensorboard_once()
    assert len(logger.filters) == len(filters) + 1
    try:
        for _ in range(3):
            bar = progress_bar.progress_bar([1], "none", tensorboard_logdir=str(tmp_path))
            assert [*iter(bar)] == [1]
        logger.warning("another one")
    finally:
        logger.filters[:] = filters
        warn_of_tensorboard_once.cache_clear()
    said = [record.getMessage() for record in caplog.records if record.name == logger.name]
    assert len(said) == 2 and said[1] == "another one"
    assert said[0].endswith("run `pip install 'sut_fairseq[tensorboard]'`.")
