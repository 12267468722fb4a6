"""Tiny binarised data for the tests of console commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sut_data.kit.examples import keyed_order, write_text
from sut_data.sets.scan.grammar import all_pairs
from tests.integration.commands import SIZES, TINY, run, train


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train.src` ... `test.tgt`: the first short SCAN pairs in a random order."""
    folder = tmp_path_factory.mktemp("text")
    pairs = keyed_order((p for p in all_pairs() if len(p.target.split()) <= 6), "tests")
    start = 0
    for split, size in SIZES.items():
        write_text(folder, {split: pairs[start : start + size]}, ())
        start += size
    return folder


@pytest.fixture(scope="session")
def data(text: Path) -> Path:
    """The pairs binarised with a dictionary for each side."""
    return _binarise(text, text / "separate")


@pytest.fixture(scope="session")
def joined_data(text: Path) -> Path:
    """The pairs binarised with one dictionary for both sides."""
    return _binarise(text, text / "joined", "--joined-dictionary")


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a small `sut_tiny` after two updates on `data`."""
    folder = tmp_path_factory.mktemp("trained")
    train(data, folder, *TINY)
    return folder / "checkpoint_last.pt"


def _binarise(text: Path, out: Path, *arguments: str) -> Path:
    splits = [word for split in SIZES for word in (f"--{split}pref", text / split)]
    languages = ("--source-lang", "src", "--target-lang", "tgt")
    run("fairseq-preprocess", *languages, *splits, "--destdir", out, *arguments)
    return out
