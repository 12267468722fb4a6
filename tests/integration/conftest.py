"""Tiny binarised data for the tests of console commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sut_data.kit.examples import keyed_order, write_text
from sut_data.sets.scan.grammar import all_pairs
from tests.integration.commands import SIZES, TINY, run, train, words


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


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of one to three words and a label, with a column."""
    folder = tmp_path_factory.mktemp("classes")
    (folder / "text").mkdir()
    sources = [" ".join("abc"[: 1 + number % 3]) for number in range(12)]
    lines = {
        "src": sources,
        "tgt": ["odd" if len(source.split()) % 2 else "even" for source in sources],
        "kind": ["last" if source.endswith("c") else "other" for source in sources],
    }
    for split in ("train", "valid", "test"):
        for name, column in lines.items():
            (folder / "text" / f"{split}.{name}").write_text("\n".join(column) + "\n")
    prefixes = [word for s in ("train", "valid", "test") for word in (f"--{s}pref", f"text/{s}")]
    run("fairseq-preprocess", *words("-s src -t tgt --destdir ."), *prefixes, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def router(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data router that halts by ACT, after two updates."""
    folder = tmp_path_factory.mktemp("router")
    train(
        classes, folder, *words("--task sequence_classification --criterion classification"),
        *words("--arch ndr_ctl --encoder-embed-dim 16 --encoder-ffn-embed-dim 16"),
        *words("--encoder-attention-heads 2 --encoder-layers 4 --encoder-halting act"),
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


def _binarise(text: Path, out: Path, *arguments: str) -> Path:
    splits = [word for split in SIZES for word in (f"--{split}pref", text / split)]
    languages = ("--source-lang", "src", "--target-lang", "tgt")
    run("fairseq-preprocess", *languages, *splits, "--destdir", out, *arguments)
    return out
