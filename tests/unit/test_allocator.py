"""Keeping freed memory in the process."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sut_fairseq import _allocator
from sut_fairseq._allocator import keep_freed_memory
from tests.integration.commands import run


@pytest.fixture(autouse=True)
def first_call() -> Iterator[None]:
    """Forget that an earlier test has called it."""
    keep_freed_memory.cache_clear()
    yield
    keep_freed_memory.cache_clear()


# Large blocks of memory that is new each time, and how many of its pages the system had to give.
MEASURED = """
import os
import resource
import torch
for name in [name for name in os.environ if name.startswith("MALLOC_")]:
    del os.environ[name]
from sut_fairseq._allocator import keep_freed_memory
assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)  # 64 MB are 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(5)))  # a busy machine may take some pages back even so
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="concerns glibc alone")
def test_large_blocks_are_reused() -> None:
    """In a process of its own: where an allocation has failed, glibc has another arena in use.

    Large blocks have no room in that one, so that the system is asked for each of them.
    """
    assert int(run("python", "-c", MEASURED).stdout) < 16384 / 4


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="concerns glibc alone")
def test_it_says_so_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    with caplog.at_level(logging.INFO, "sut_fairseq"):
        assert keep_freed_memory()
        assert keep_freed_memory()
    (line,) = caplog.messages
    assert line.startswith("training on a CPU: the C library keeps freed memory")


def test_the_users_settings_win(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    with caplog.at_level(logging.INFO, "sut_fairseq"):
        assert not keep_freed_memory()
    assert not caplog.messages


def test_an_old_c_library_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses so large a threshold; the other settings alone would slow it down."""
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    asked: list[tuple[int, int]] = []

    def mallopt(option: int, value: int) -> int:
        asked.append((option, value))
        return 0

    monkeypatch.setattr(_allocator.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    with caplog.at_level(logging.INFO, "sut_fairseq"):
        assert not keep_freed_memory()
    assert len(asked) == 1 and not caplog.messages
