"""What the scripts say on a machine that lacks something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from shlex import quote

import pytest

# What the scripts use before they have an environment of their own.
TOOLS = ("bash", "cat", "cksum", "dirname", "grep", "mkdir", "readlink", "rm", "sed", "sleep")


@pytest.fixture
def machine(repository: Path, tmp_path: Path) -> Path:
    """A copy of the scripts without `.venv`, and `bin/`, all that is on PATH."""
    shutil.copytree(repository / "scripts", tmp_path / "scripts")
    (tmp_path / "sut_fairseq").mkdir()
    for name in ("setup.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(repository / name, tmp_path / name)
    for name in ("_requirements.py", "constraints.txt"):
        shutil.copy(repository / "sut_fairseq" / name, tmp_path / "sut_fairseq" / name)
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


def sourced(
    repository: Path, commands: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run commands of a script that uses the environment."""
    script = f". {quote(str(repository / 'scripts' / '_environment.sh'))}\n{commands}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )


def program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


def test_an_installation_shows_that_it_is_alive(repository: Path, tmp_path: Path) -> None:
    pip = program(
        tmp_path / "python",
        'echo "Requirement already satisfied: $*"',
        'echo "Collecting $4"',
        "/bin/sleep 1",
    )
    program(tmp_path / "sleep", "exec /bin/sleep 0.1")  # instead of 15 seconds
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = sourced(repository, f"python={quote(str(pip))}\ninstall_step torch torch", PATH=path)
    assert process.returncode == 0, process.stderr
    first, *rest = process.stdout.splitlines()
    assert first.endswith(" s] installing torch")
    assert "Collecting torch" in rest
    assert [line for line in rest if line.endswith(" s] still installing torch")]
    assert "already satisfied" not in process.stdout
    assert process.stderr == ""


def test_a_failed_installation_says_what_failed(repository: Path, tmp_path: Path) -> None:
    pip = program(tmp_path / "python", "echo 'ERROR: no network' >&2", "exit 1")
    process = sourced(
        repository, f"python={quote(str(pip))}\ninstall_step torch torch\necho not reached"
    )
    assert process.returncode == 1
    assert process.stderr.splitlines() == [
        "ERROR: no network",
        "bash: error: torch could not be installed; pip says why above.",
    ]
    assert "not reached" not in process.stdout


def environment(folder: Path, *, whole: bool) -> Path:
    """The Python of a new environment; a whole one has all that the tests run with."""
    venv.create(folder, with_pip=False)
    if whole:  # the editable installation of the repository included
        here = sysconfig.get_path("purelib", vars={"base": str(folder)})
        Path(here, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def test_an_active_environment_is_used_if_the_package_is_there(
    repository: Path, tmp_path: Path
) -> None:
    commands = "installed_python test || echo none"
    active = {"VIRTUAL_ENV": str(tmp_path / "active")}
    environment(tmp_path / "active", whole=False)
    assert sourced(repository, commands, **active).stdout == "none\n"
    assert sourced(repository, commands).stdout == "none\n"

    python = environment(tmp_path / "active", whole=True)
    assert sourced(repository, commands, **active).stdout == f"{python}\n"
    assert sourced(repository, commands, CONDA_PREFIX=active["VIRTUAL_ENV"]).stdout == f"{python}\n"


def test_what_the_scripts_did_not_install_is_left_as_it_is(machine: Path) -> None:
    """A `.venv` may have another torch, for somebody's GPU."""
    environment(machine / ".venv", whole=False)
    commands = 'made_here "$repository/.venv" && echo yes || echo no'
    assert sourced(machine, commands).stdout == "no\n"
    (machine / ".venv" / "installed-partly").touch()
    assert sourced(machine, commands).stdout == "yes\n"
    assert sourced(machine, commands.replace(".venv", "env")).stdout == "no\n"


@pytest.fixture
def checkout(repository: Path, machine: Path) -> Path:
    """A copy of what prepares SCAN, whose program says by which Python it runs."""
    stub = machine / "data-prep" / "sut_data"
    stub.mkdir(parents=True)
    for name in ("_common.sh", "scan.sh"):
        shutil.copy(repository / "data-prep" / name, stub.parent)
    (stub / "__main__.py").write_text("import sys\nsys.exit(sys.prefix)\n")
    return machine


@pytest.mark.parametrize(
    ("whole", "used"),
    [
        (("active", ".venv", "path"), "active"),
        ((".venv", "path"), ".venv"),  # instead of an active one without fairseq
        (("path",), "path"),  # instead of a half-made .venv
        ((), "active"),  # to say what it lacks
    ],
    ids=["active", "repository", "path", "none"],
)
def test_data_are_prepared_by_a_python_that_can(
    checkout: Path, whole: tuple[str, ...], used: str
) -> None:
    for name in ("active", ".venv", "path"):
        environment(checkout / name, whole=name in whole)
    process = subprocess.run(
        ["bash", str(checkout / "data-prep" / "scan.sh"), "--out", "o"],
        env={
            "PATH": f"{checkout / 'path' / 'bin'}:{checkout / 'bin'}",
            "VIRTUAL_ENV": str(checkout / "active"),
        },
        capture_output=True,
        text=True,
    )
    assert process.stderr == f"{checkout / used}\n"


def test_data_are_not_prepared_without_python(checkout: Path) -> None:
    command = [str(checkout / "bin" / "bash"), str(checkout / "data-prep" / "scan.sh")]
    path = {"PATH": str(checkout / "bin")}
    process = subprocess.run(command, env=path, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr.startswith("scan.sh: error: no Python 3.11 or newer was found: install")


def test_the_quick_start_prepares_by_the_python_that_it_trains_with(checkout: Path) -> None:
    """Not by that of an active environment, which belongs to another repository."""
    environment(checkout / "active", whole=True)
    environment(checkout / ".venv", whole=True)
    stamp = checkout / ".venv" / "installed-test"
    assert sourced(checkout, f"fingerprint test >{quote(str(stamp))}").returncode == 0
    process = subprocess.run(
        ["bash", str(checkout / "scripts" / "quickstart.sh"), "--out", str(checkout / "out")],
        env={"PATH": os.environ["PATH"], "VIRTUAL_ENV": str(checkout / "active")},
        capture_output=True,
        text=True,
    )
    used, ending = process.stderr.splitlines()
    assert used == str(checkout / ".venv")
    assert ending == "quickstart.sh: error: the data could not be prepared; the reason is above."
