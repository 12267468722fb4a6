"""Options and fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.browser import NAMES, find_chromium

REPOSITORY = Path(__file__).resolve().parents[1]
PUBLISHED = "published_data"
BROWSER = "browser"

# Set before torch is imported, and inherited by the commands that tests start: under
# pytest-xdist every process has one core, and more threads than cores slow all of them down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# In the background of a shell Ctrl-C is ignored, also by what the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("fast", deadline=None, max_examples=30)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption(
        "--data-dir",
        type=Path,
        default=REPOSITORY.parent / "shared" / "data",
        metavar="DIR",
        help="folder of published data sets, for the tests marked published_data "
        "(default: ../shared/data; where it is absent, they are skipped and counted)",
    )


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("slow" if config.getoption("--slow") else "fast")


@pytest.hookimpl(tryfirst=True)  # before pytest itself selects by `-m`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests unless asked for; mark and skip those this machine cannot run."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]
    folder: Path = config.getoption("--data-dir")
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(PUBLISHED)
            if not folder.is_dir():
                item.add_marker(pytest.mark.skip(reason=f"no folder {folder} (--data-dir DIR)"))
    in_browser = [item for item in items if item.get_closest_marker(BROWSER)]
    if in_browser and find_chromium() is None:
        for item in in_browser:
            item.add_marker(pytest.mark.skip(reason=f"no Chromium ({', '.join(NAMES)}) on PATH"))
    on_cuda = [item for item in items if item.get_closest_marker("cuda")]
    if on_cuda:
        import torch  # only here: most of a short run would be spent on importing it

        if not torch.cuda.is_available():
            for item in on_cuda:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Count separately the tests that not every machine can run: skipped, they prove nothing."""
    folder = config.getoption("--data-dir")
    for mark, what, lacking in (
        (PUBLISHED, "published data sets", f"there is no folder {folder} (--data-dir DIR)"),
        (BROWSER, "pages in a browser", "there is no Chromium (apt-get install chromium)"),
    ):
        outcomes = {
            outcome: sum(mark in getattr(report, "keywords", ()) for report in reports)
            for outcome, reports in terminalreporter.stats.items()
            if outcome in ("passed", "failed", "error", "skipped")
        }
        missed = outcomes.pop("skipped", 0)
        if ran := sum(outcomes.values()):
            terminalreporter.write_line(f"{what}: {ran} tests ran")
        if missed:
            terminalreporter.write_line(f"{what}: {missed} tests did not run, {lacking}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def samples() -> Path:
    """A few lines of each data set in its published form; see tests/data/README.md."""
    return REPOSITORY / "tests" / "data"


@pytest.fixture(scope="session")
def shared_data(request: pytest.FixtureRequest) -> Path:
    """The folder of published data files, `--data-dir`.

    A test that asks for it carries the mark `published_data`, and is skipped where there is none.
    """
    folder: Path = request.config.getoption("--data-dir")
    return folder
