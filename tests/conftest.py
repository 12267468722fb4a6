"""Options and fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# Set before torch is imported, and inherited by the commands that tests start: under
# pytest-xdist every process has one core, and more threads than cores slow all of them down.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# How long an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests unless asked for, and CUDA tests where there is no device."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]
    on_cuda = [item for item in items if item.get_closest_marker("cuda")]
    if on_cuda:
        import torch  # only here: most of a short run would be spent on importing it

        if not torch.cuda.is_available():
            for item in on_cuda:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of published data files that may lie beside the repository.

    Without it a test is skipped, except in continuous integration (`CI` is set), where a check
    that silently does not happen would be worse than a failure.
    """
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        reason = "the published data files (../shared/data) are not beside the repository"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
