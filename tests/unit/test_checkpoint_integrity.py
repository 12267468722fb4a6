"""What a damaged checkpoint is recognised by."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sut_fairseq.checkpoints.integrity import DamagedCheckpointError, check_file, check_whole
from sut_fairseq.errors import InputError
from tests.damage import fail_to_open, flip, span


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint with a weight of 40 kB among small records and an empty one, of checksum 0."""
    generator = torch.Generator().manual_seed(1)
    weights = {"large": torch.rand(100, 100, generator=generator), "small": torch.ones(3)}
    weights["none"] = torch.empty(0)
    torch.save({"model": weights}, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


def test_what_torch_writes_is_whole(path: Path) -> None:
    check_whole(path)
    check_whole(str(path))
    assert check_file(path) is None


def test_one_flipped_bit_in_the_weights(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[span(path, "data/0")[20_000]] ^= 1
    path.write_bytes(content)
    assert torch.load(path)["model"]["large"].shape == (100, 100)  # without a word
    check_file(path)
    with pytest.raises(DamagedCheckpointError, match=r"`checkpoint/data/0` in it is not what was"):
        check_whole(path)


def test_flipped_bytes_anywhere_that_count(path: Path) -> None:
    """Padding between records apart, every byte is of a record, a header or the contents' table.

    A byte of a header that nobody reads, like a time, may go unnoticed; then the records are whole.
    """
    content, random_ = path.read_bytes(), random.Random(1)
    whole = {record: [content[i] for i in span(path, record)] for record in ("data/0", "data.pkl")}
    unnoticed = 0
    for place in random_.sample(range(len(content)), 150):
        path.write_bytes(content)
        flip(path, [place])
        try:
            check_whole(path)
        except DamagedCheckpointError:
            continue
        unnoticed += 1
        assert {name: [path.read_bytes()[i] for i in span(path, name)] for name in whole} == whole
    assert unnoticed < 15


@pytest.mark.parametrize("kept", [0, 1, 3, 1000, 0.5, 0.99])
def test_cut_off(path: Path, kept: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    for check in (check_file, check_whole):
        with pytest.raises(DamagedCheckpointError, match="is truncated|is not a fairseq"):
            check(path)


def test_a_file_that_changes_is_checked_again(path: Path) -> None:
    check_whole(path)
    flip(path, [span(path, "data/0")[0]])
    with pytest.raises(DamagedCheckpointError):
        check_whole(path)


def test_old_and_unchecked_formats_pass(tmp_path: Path) -> None:
    old, unchecked = tmp_path / "old.pt", tmp_path / "unchecked.pt"
    torch.save({"model": {}}, old, _use_new_zipfile_serialization=False)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"model": {}}, unchecked)
    finally:
        torch.serialization.set_crc32_options(True)
    check_whole(old)
    check_whole(unchecked)


def test_what_is_no_file(path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        check_whole(path.parent)
    with pytest.raises(InputError, match="There is no checkpoint"):
        check_whole(path.with_name("nothing.pt"))
    circle = path.with_name("circle.pt")
    circle.symlink_to(circle)
    with pytest.raises(InputError):
        check_whole(circle)


@pytest.mark.parametrize("check", [check_file, check_whole])
def test_what_cannot_be_read(
    path: Path, check: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_open(monkeypatch, path, errno.EACCES)
    with pytest.raises(InputError, match="cannot be read .Permission denied") as refused:
        check(path)
    assert not isinstance(refused.value, DamagedCheckpointError)
    fail_to_open(monkeypatch, path, errno.EIO)
    with pytest.raises(DamagedCheckpointError, match="Input/output error"):
        check(path)
