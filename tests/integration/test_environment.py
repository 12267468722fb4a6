"""What the scripts say on a machine that lacks something."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What the scripts use before they have an environment of their own.
TOOLS = ("bash", "cat", "cksum", "dirname", "grep", "mkdir", "rm", "sed", "sleep")


@pytest.fixture
def machine(repository: Path, tmp_path: Path) -> Path:
    """A copy of the scripts without `.venv`, and `bin/`, all that is on PATH."""
    shutil.copytree(repository / "scripts", tmp_path / "scripts")
    (tmp_path / "sut_fairseq").mkdir()
    for name in ("setup.py", "pyproject.toml", "constraints.txt", "sut_fairseq/_requirements.py"):
        shutil.copy(repository / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def refusal(machine: Path, **environment: str) -> str:
    """The one line that the quick start ends with."""
    process = subprocess.run(
        [str(machine / "bin" / "bash"), str(machine / "scripts" / "quickstart.sh")],
        env={"PATH": str(machine / "bin"), **environment},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    return line


def test_no_python(machine: Path) -> None:
    assert refusal(machine).startswith(
        "quickstart.sh: error: no Python 3.11 or newer was found: install one"
    )


def test_the_wrong_python(machine: Path) -> None:
    assert "PYTHON=/nowhere/python is not a Python 3.11 or newer" in refusal(
        machine, PYTHON="/nowhere/python"
    )


def test_no_compiler(machine: Path) -> None:
    base = str(Path(sys.base_prefix, "bin", "python3"))
    assert refusal(machine, PYTHON=base).startswith(
        "quickstart.sh: error: no C++ compiler was found (g++, c++ or clang++)"
    )


@pytest.mark.parametrize("script", ["quickstart.sh", "test.sh"])
def test_help_needs_nothing(machine: Path, script: str) -> None:
    process = subprocess.run(
        [str(machine / "bin" / "bash"), str(machine / "scripts" / script), "--help"],
        env={"PATH": str(machine / "bin")},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0 and process.stderr == ""
    assert process.stdout.startswith(f"usage: bash scripts/{script}")
    assert not (machine / ".venv").exists()
