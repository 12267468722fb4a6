"""Which checkpoint a training goes on from."""

from __future__ import annotations

import errno
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from sut_fairseq.checkpoints.progress import Progress, progress_of
from sut_fairseq.checkpoints.resuming import find_start
from sut_fairseq.errors import InputError
from tests.damage import fail_to_open, flip, largest_record, span


def save(path: Path, updates: int, **changes: Any) -> Path:
    """A checkpoint of a tiny training; keys that are changed to None are left out."""
    torch.manual_seed(1)
    model = torch.nn.Linear(50, 50)
    state = {
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 1}, {"num_updates": updates}],
        "last_optimizer_state": {"step": torch.tensor(1.0)},
        "extra_state": {"train_iterator": {"epoch": 1}, "best": numpy.float64(1)},
        **changes,
    }
    torch.save({key: value for key, value in state.items() if value is not None}, path)
    return path


def cut(path: Path, missing: int = 5000) -> None:
    path.write_bytes(path.read_bytes()[:-missing])


def test_progress_of_whole_and_damaged_files(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", 7)
    assert progress_of(path) == Progress(7, resumable=True)
    cut(path)
    assert progress_of(path) == Progress(7, resumable=True)
    cut(path, missing=path.stat().st_size - 300)
    assert progress_of(path) is None
    assert progress_of(tmp_path / "nothing.pt") is None
    assert progress_of(tmp_path) is None
    averaged = save(tmp_path / "b.pt", 7, last_optimizer_state=None)
    assert progress_of(averaged) == Progress(7, resumable=False)
    crashed = save(tmp_path / "c.pt", 7, extra_state={})
    assert progress_of(crashed) == Progress(7, resumable=False)


class Smuggled:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(Path.cwd() / "it ran"),))


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "a.pt", 7, extra_state={"train_iterator": {}, "evil": Smuggled()})
    assert progress_of(path) == Progress(7, resumable=True)
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Smuggled()))
    assert progress_of(tmp_path / "b.pt") is None
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "b.pt"]


@pytest.mark.parametrize("name", ["checkpoint_last.pt", "checkpoint2.pt"])
def test_what_may_be_whole_is_not_passed_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older checkpoint is taken only where the newer one is lost."""
    save(tmp_path / "checkpoint1.pt", 10)
    newer = save(tmp_path / name, 20)
    fail_to_open(monkeypatch, newer, errno.EACCES)
    with pytest.raises(InputError, match="cannot be read .Permission denied"):
        find_start(tmp_path)
    fail_to_open(monkeypatch, newer, errno.EIO)
    assert find_start(tmp_path) == tmp_path / "checkpoint1.pt"


def test_the_last_one(tmp_path: Path) -> None:
    """Even where another one is newer: somebody may have put it there."""
    last = save(tmp_path / "checkpoint_last.pt", 3)
    save(tmp_path / "checkpoint_1_5.pt", 5)
    assert find_start(tmp_path) == last


def test_nothing_to_start_from(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert find_start(tmp_path) is None
    assert find_start(tmp_path / "nowhere") is None
    assert not caplog.messages


NEWEST = {"checkpoint2.pt": 20, "checkpoint_3_25.pt": 25, "checkpoint_best.pt": 15}
NEWEST |= {"checkpoint.best_loss_1.5003.pt": 10}
NO_START = ("checkpoint_average.pt", "crash.pt", "checkpoint_4_40-shard0.pt", "mine.pt")


def fill(folder: Path) -> None:
    for name, updates in NEWEST.items():
        save(folder / name, updates)
    for name in NO_START:
        save(folder / name, 99)
    save(folder / "checkpoint5.pt", 50, last_optimizer_state=None)


def test_the_newest_whole_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path)
    last = save(tmp_path / "checkpoint_last.pt", 30)
    content = last.read_bytes()
    for name, updates in sorted(NEWEST.items(), key=lambda item: -item[1]):
        caplog.clear()
        last.write_bytes(content)
        cut(last)
        assert find_start(tmp_path) == tmp_path / name
        assert caplog.messages[-1] == (
            f"checkpoint_last.pt is damaged: going on from {tmp_path / name}, the newest intact "
            f"checkpoint, at update {updates}; {30 - updates} updates are lost"
        )
        damaged = tmp_path / name
        flip(damaged, largest_record(damaged)[:10])
    last.write_bytes(content)
    cut(last)
    assert find_start(tmp_path) is None
    assert caplog.messages[-1] == (
        f"no checkpoint in {tmp_path} is intact: the training begins anew; 30 updates are lost"
    )
    kept = {path.name for path in tmp_path.glob("*.damaged*")}
    lasts = {
        "checkpoint_last.pt.damaged",
        *(f"checkpoint_last.pt.damaged-{n}" for n in range(2, 6)),
    }
    assert kept == {*lasts, *(f"{name}.damaged" for name in NEWEST)}
    assert not last.exists()
    assert all((tmp_path / name).exists() for name in NO_START)


def test_a_missing_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path)
    newest = tmp_path / "checkpoint_3_25.pt"
    assert find_start(tmp_path) == newest
    assert caplog.messages[-1].startswith("checkpoint_last.pt is missing: going on from")
    assert caplog.messages[-1].endswith("at update 25; whether later updates are lost is not known")
    flip(newest, largest_record(newest)[:1])
    assert find_start(tmp_path) == tmp_path / "checkpoint2.pt"
    assert caplog.messages[-1].endswith("at update 20; at least 5 updates are lost")


def test_a_damaged_structure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Then nobody knows how far it was."""
    last = save(tmp_path / "checkpoint_last.pt", 30)
    flip(last, span(last, "data.pkl")[10:])
    assert find_start(tmp_path) is None
    assert caplog.messages[-1].endswith(
        "the training begins anew; whether later updates are lost is not known"
    )


def test_a_suffix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path / "checkpoint_1_5.pt", 5)
    own = save(tmp_path / "checkpoint_1_3-mine.pt", 3)
    with caplog.at_level(logging.CRITICAL):
        assert find_start(tmp_path, "-mine") == own


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_one_that_may_not_be_read_is_not_damaged(tmp_path: Path) -> None:
    last = save(tmp_path / "checkpoint_last.pt", 5)
    last.chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        find_start(tmp_path)
    assert last.exists()


def test_a_folder_in_its_place_is_not_damaged(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_last.pt").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        find_start(tmp_path)


def test_a_link_that_leads_nowhere_is_no_new_training(tmp_path: Path) -> None:
    """The disk behind it may not be mounted; a new training would replace the link."""
    last = tmp_path / "checkpoint_last.pt"
    last.symlink_to(tmp_path / "gone" / "x.pt")
    with pytest.raises(InputError, match=r"is a link to .*/gone/x.pt, which is not there: mount"):
        find_start(tmp_path)
    assert last.is_symlink()


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    for name in ("checkpoint_last.pt", "checkpoint1.pt"):
        os.mkfifo(tmp_path / name)
        assert progress_of(tmp_path / name) is None
    with pytest.raises(InputError):
        find_start(tmp_path)
