"""What is refused before it could fail without saying why."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from sut_fairseq import _requirements
from sut_fairseq.errors import InputError


def pretend(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    versions = {name.replace("_", "-"): number for name, number in installed.items()}

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(_requirements, "version", version)


def test_what_the_pins_install_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, torch="2.13.0+cpu", fairseq_fixed="0.12.3.1")
    _requirements.check_requirements()


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, torch="2.5.1+cu121", fairseq="0.12.2")
    with pytest.raises(InputError, match=r"^torch 2\.5\.1\+cu121 is too old: 2\.6 or newer"):
        _requirements.check_requirements()


def test_two_distributions_of_fairseq_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, torch="2.6.0", fairseq="0.12.2", fairseq_fixed="0.12.3.1")
    with pytest.raises(InputError, match="both `fairseq` and `fairseq-fixed` are installed"):
        _requirements.check_requirements()
