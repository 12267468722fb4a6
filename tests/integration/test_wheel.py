"""The built wheel and sdist: complete, and usable without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.integration.commands import SMALL, words

pytestmark = pytest.mark.slow

TRACKED_ELSEWHERE = (".ci/", ".github/", ".gitignore", ".pre-commit-config.yaml")


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("built")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, repository)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("sut_fairseq-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; what that depends on is found where the tests run.

    A folder that a `.pth` file names is searched for modules, but not for further `.pth` files:
    the editable installation of the repository, which is one, has no effect.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    call(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"),
        *("--no-deps", "--no-index", "--disable-pip-version-check", wheel),
    )
    Path(packages, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def call(*command: object, cwd: Path | None = None) -> str:
    """Run a command without anything of the repository in its surroundings; its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True
    )
    assert process.returncode == 0, (process.stdout + process.stderr)[-3000:]
    return process.stdout


def test_the_wheel_holds_the_package_and_no_more(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = call("git", "ls-files", "sut_fairseq", cwd=repository).split()
    assert set(tracked) <= names
    assert not [name for name in names if name.startswith(("tests", "scripts", "docs"))]


def test_the_sdist_holds_the_repository(built: Path, repository: Path) -> None:
    (path,) = built.glob("sut_fairseq-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = call("git", "ls-files", cwd=repository).split()
    expected = {name for name in tracked if not name.startswith(TRACKED_ELSEWHERE)}
    assert expected - names == set()


def test_the_commands_of_the_wheel(environment: Path, data: Path, tmp_path: Path) -> None:
    commands = environment / "bin"
    user_dir = call(commands / "sut-user-dir", cwd=tmp_path).strip()
    assert Path(user_dir).is_relative_to(environment.resolve())
    assert call(commands / "sut-doctor", cwd=tmp_path).endswith("all is well\n")
    size = words("--src-len 10 --tgt-len 10 --vocab-size 24")
    counted = call(commands / "sut-macs", "--arch", "sut_tiny", *size, cwd=tmp_path)
    assert "MACs" in counted

    options = words(
        "--arch sut_tiny --cpu --batch-size 8 --optimizer adam --max-update 2 --num-workers 0 "
        "--required-batch-size-multiple 1 --criterion cross_entropy_with_auxiliary"
    )
    train = (commands / "python", "-m", "fairseq_cli.train", data, "--user-dir", user_dir)
    call(*train, *options, *SMALL, "--save-dir", tmp_path / "run", cwd=tmp_path)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()
