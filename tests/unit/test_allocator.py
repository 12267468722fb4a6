"""Keeping freed memory in the process."""

from __future__ import annotations

import os
import platform
import resource

import pytest
import torch

from sut_fairseq._allocator import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="concerns glibc alone")
def test_large_blocks_are_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    assert keep_freed_memory()

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(1 << 24)  # 64 MB are 16,384 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults()
    assert min(faults() for _ in range(3)) < 1000


def test_the_users_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory()
