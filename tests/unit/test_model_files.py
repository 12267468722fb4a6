"""Which checkpoint of a folder is meant, and what kind of model it holds."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from sut_fairseq.errors import InputError
from sut_fairseq.inference.files import find_checkpoint, find_model


def make(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_a_folder_of_several_runs_names_them(tmp_path: Path) -> None:
    for name in ("sut-seed-1", "ut-seed-1"):
        make(tmp_path / name, "run.json")
    with pytest.raises(InputError, match=r"of several runs \(sut-seed-1, ut-seed-1\): name one."):
        find_checkpoint(tmp_path)


def test_a_run_is_the_folder_of_its_checkpoints(tmp_path: Path) -> None:
    """Only where it has none itself; the folders of its stages do not count."""
    make(tmp_path / "up-to-13", "checkpoint_best.pt")
    with pytest.raises(InputError, match="has no checkpoint"):
        find_checkpoint(tmp_path)
    kept = tmp_path / "checkpoints"
    make(kept)
    with pytest.raises(InputError, match="has no checkpoint"):
        find_checkpoint(tmp_path)
    make(kept, "checkpoint1.pt", "checkpoint2.pt")
    with pytest.raises(InputError, match="checkpoints` has 2 checkpoints, and none is called"):
        find_checkpoint(tmp_path)
    make(kept, "checkpoint_last.pt")
    assert find_checkpoint(tmp_path) == find_checkpoint(kept) == kept / "checkpoint_last.pt"
    make(kept, "checkpoint_best.pt")
    assert find_checkpoint(tmp_path) == kept / "checkpoint_best.pt"
    make(tmp_path, "mine.pt")
    assert find_checkpoint(tmp_path) == tmp_path / "mine.pt"


@pytest.mark.parametrize(
    "settings",
    [
        {"args": None, "cfg": {"task": {"_name": "language_modeling"}}},
        {"args": Namespace(task="language_modeling"), "cfg": None},  # of older versions of fairseq
    ],
)
def test_a_language_model_translates_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    torch.save({"model": {"weight": torch.ones(1)}, **settings}, tmp_path / "lm.pt")
    with pytest.raises(InputError, match="is a language model, which translates nothing"):
        find_model(tmp_path / "lm.pt")
