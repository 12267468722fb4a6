"""The folder of a training's checkpoints."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from fairseq.checkpoint_utils import verify_checkpoint_directory

from sut_fairseq.checkpoints import save_folder
from sut_fairseq.checkpoints.save_folder import claim, telling_why
from sut_fairseq.errors import InputError


def test_one_training_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_folder, "_PATIENCE", 0.1)
    monkeypatch.setattr(save_folder, "_held", {})
    other = os.open(tmp_path, os.O_RDONLY)  # as another process would have it
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=f"another training saves its checkpoints in {tmp_path}: "):
        claim(tmp_path)
    os.close(other)
    claim(tmp_path)
    claim(tmp_path)  # the same process has it
    (descriptor,) = save_folder._held.values()
    other = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    os.close(descriptor)
    claim(tmp_path / "absent")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    verify = telling_why(verify_checkpoint_directory)
    verify(str(tmp_path / "new"))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--save-dir .*/file cannot be written \(Not a directory"):
        verify(str(tmp_path / "file"))
