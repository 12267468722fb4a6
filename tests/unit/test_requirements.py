"""What is refused before it could fail without saying why, and what is an extra."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

import pytest

from sut_data.command_line import EXTRAS
from sut_fairseq import _requirements
from sut_fairseq._requirements import unmet_requirement


def pretend(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    versions = {name.replace("_", "-"): number for name, number in installed.items()}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(_requirements, "version", version)


def test_what_the_pins_install_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, torch="2.13.0+cpu", fairseq_fixed="0.12.3.1")
    assert unmet_requirement() is None


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, torch="2.5.1+cu121", fairseq_fixed="0.12.3.1")
    assert unmet_requirement() == (
        "torch 2.5.1+cu121 is too old: 2.6 or newer is needed, install it in a fresh environment."
    )


def test_two_distributions_of_fairseq_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, torch="2.6.0", fairseq="0.12.2", fairseq_fixed="0.12.3.1")
    sentence = unmet_requirement()
    assert sentence is not None
    assert sentence.startswith("both `fairseq` and `fairseq-fixed` are installed")


def test_the_oldest_torch_is_that_of_the_package() -> None:
    oldest = ".".join(map(str, _requirements.OLDEST_TORCH))
    assert f"torch>={oldest}" in (requires("sut_fairseq") or [])


def test_the_extras_are_those_of_the_package() -> None:
    needs = requires("sut_fairseq") or []
    for module, extra in EXTRAS.items():
        distribution = module.replace("_", "-")
        of_extra = [one for one in needs if one.partition(";")[2].strip() == f'extra == "{extra}"']
        assert [one for one in of_extra if one.startswith(distribution)], (module, extra)
        assert not [one for one in needs if one.startswith(distribution) and ";" not in one]


def status_of_the_file(*hidden: str) -> subprocess.CompletedProcess[str]:
    """Run the file as scripts do, where some distributions are not there."""
    program = (
        "import importlib.metadata as m, runpy, sys\n"
        "version = m.version\n"
        "def some(name):\n"
        f"    if name in {hidden!r}: raise m.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "m.version = some\n"
        f"runpy.run_path({_requirements.__file__!r}, run_name='__main__')\n"
        "assert 'torch' not in sys.modules\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_the_file_as_a_program() -> None:
    assert status_of_the_file().returncode == 0
    missing = status_of_the_file("torch")
    assert (missing.returncode, missing.stderr) == (_requirements.NOT_INSTALLED, "")
