"""Checkpoints appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_data.files import own_mark
from sut_fairseq.checkpoints import writing
from sut_fairseq.errors import InputError

STATE = {"model": {"weight": torch.arange(4.0)}}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file where a checkpoint goes."""
    path = tmp_path / "checkpoint.pt"
    path.write_text("old")
    return path


def fail_with(monkeypatch: pytest.MonkeyPatch, *errors: OSError) -> list[OSError]:
    """Let the first saves fail as torch does on a full disk; the errors that are left."""
    left, save = list(errors), torch.save

    def fail(state: Any, file: Any) -> None:
        if not left:
            save(state, file)
            return
        file.write(b"half of it")
        try:
            raise left.pop(0)
        except OSError:
            raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904 - as torch's reader has it

    monkeypatch.setattr(torch, "save", fail)
    monkeypatch.setattr(writing.time, "sleep", lambda seconds: None)
    return left


def test_a_checkpoint_replaces_the_old_one(old: Path) -> None:
    writing.save(STATE, old)
    assert torch.load(old)["model"]["weight"].tolist() == [0, 1, 2, 3]
    assert os.listdir(old.parent) == [old.name]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_without_room_the_old_one_stays(
    number: int, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = fail_with(monkeypatch, *[OSError(number, "No room") for _ in range(2)])
    with pytest.raises(InputError) as raised:
        writing.save(STATE, old)
    assert str(raised.value) == (
        f"`{old}` could not be written (No room): what was there before is as it was; make room "
        "and give the same command again."
    )
    assert len(left) == 1, "tried again"
    assert old.read_text() == "old"
    assert os.listdir(old.parent) == [old.name]


def test_what_may_pass_is_tried_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, OSError(errno.EIO, "Input/output error"), OSError(errno.ESTALE, "Stale"))
    writing.save(STATE, old)
    assert torch.load(old)["model"]["weight"].tolist() == [0, 1, 2, 3]
    fail_with(monkeypatch, *[OSError(errno.EIO, "Input/output error") for _ in range(3)])
    with pytest.raises(InputError, match=r"written \(Input/output error\).* put that right and"):
        writing.save(STATE, old)


def test_a_defect_of_ours_keeps_its_traceback(old: Path) -> None:
    with pytest.raises((AttributeError, TypeError)):
        writing.save({"model": lambda: None}, old)
    assert old.read_text() == "old"
    assert os.listdir(old.parent) == [old.name]


def test_it_is_on_the_disk_before_it_has_its_name(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(file: int) -> None:
        assert old.read_text() == "old"
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    monkeypatch.setattr(os, "fsync", fsync)
    writing.save(STATE, old)
    assert synced == [f".{own_mark()}-{old.name}.tmp"]


def test_a_copy_is_a_file_of_its_own(old: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint_last.pt"
    writing.copy(old, copy)
    writing.copy(old, copy)
    with copy.open("r+") as file:
        file.write("new")
    assert (old.read_text(), copy.read_text()) == ("old", "new")


@pytest.mark.parametrize("write", [writing.save, writing.copy])
def test_a_link_does_not_lead_to_another_checkpoint(
    write: Callable[[Any, Path], None], old: Path
) -> None:
    best = old.with_name("checkpoint_best.pt")
    best.symlink_to(old.name)
    write(STATE if write is writing.save else Path(__file__), best)
    assert old.read_text() == "old" and not best.is_symlink()


def test_what_killed_processes_left_is_deleted(old: Path) -> None:
    kept = {old.name, f".{os.getppid()}-checkpoint1.pt.tmp", ".tmp", "notes.tmp", ".1-a-notes.tmp"}
    for name in (*kept, ".999999999-checkpoint1.pt.tmp", "checkpoint_last.pt.tmp"):
        (old.parent / name).write_text("half")
    writing.clear_leftovers(old.parent)
    assert set(os.listdir(old.parent)) == kept
    writing.clear_leftovers(old.parent / "nowhere")


def test_tensors_that_share_memory() -> None:
    """The same numbers in the same places; neither a transpose, nor a part, nor emptiness."""
    square, none = torch.rand(3, 3), torch.empty(0, 3)
    tensors = {"first": square, "again": square.detach(), "turned": square.t(), "part": square[:2]}
    tensors |= {"ints": square.view(torch.int32), "nothing": none, "as little": torch.empty(0, 3)}
    assert writing.shared_memory(tensors) == {**{name: name for name in tensors}, "again": "first"}
