"""Keeping freed memory in the process."""

from __future__ import annotations

import logging
import os
import platform
import resource
from collections.abc import Iterator

import pytest
import torch

from sut_fairseq._allocator import keep_freed_memory


@pytest.fixture(autouse=True)
def first_call() -> Iterator[None]:
    """Forget that an earlier test has called it."""
    keep_freed_memory.cache_clear()
    yield
    keep_freed_memory.cache_clear()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="concerns glibc alone")
def test_large_blocks_are_reused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    with caplog.at_level(logging.INFO, "sut_fairseq"):
        assert keep_freed_memory()
        assert keep_freed_memory()
    (line,) = caplog.messages
    assert line.startswith("training on a CPU: the C library keeps freed memory")

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(1 << 24)  # 64 MB are 16,384 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults()
    # A busy machine may take some pages back even so.
    assert min(faults() for _ in range(5)) < 16384 / 4


def test_the_users_settings_win(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    with caplog.at_level(logging.INFO, "sut_fairseq"):
        assert not keep_freed_memory()
    assert not caplog.messages
