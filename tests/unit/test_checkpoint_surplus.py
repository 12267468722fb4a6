"""Which checkpoints the options --keep-* do not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fairseq.dataclass.configs import CheckpointConfig

from sut_fairseq.checkpoints.surplus import delete_surplus

FILES = {
    *("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint_1_3.pt", "checkpoint_1_4.pt"),
    *("checkpoint_2_10.pt", "checkpoint_2_8-part.pt", "checkpoint9.pt", "checkpoint10.pt"),
    *("checkpoint.best_loss_2.5000.pt", "checkpoint.best_loss_10.0001.pt", "averaged_3.pt"),
    *("checkpoint.best_bleu_1.pt", "checkpoint_1_2.pt.damaged", "notes.txt"),
}


@pytest.mark.parametrize(
    ("options", "deleted"),
    [
        ({}, set()),
        ({"keep_interval_updates_pattern": 0}, set()),
        ({"keep_interval_updates": 3}, set()),
        ({"keep_interval_updates": 2}, {"checkpoint_1_3.pt"}),
        ({"keep_interval_updates": 1}, {"checkpoint_1_3.pt", "checkpoint_1_4.pt"}),
        (
            {"keep_interval_updates": 1, "keep_interval_updates_pattern": 5},
            {"checkpoint_1_3.pt"},  # 10 is kept and does not count
        ),
        ({"keep_last_epochs": 1}, {"checkpoint9.pt"}),
        ({"keep_best_checkpoints": 1}, {"checkpoint.best_loss_10.0001.pt"}),
        (
            {"keep_best_checkpoints": 1, "maximize_best_checkpoint_metric": True},
            {"checkpoint.best_loss_2.5000.pt"},
        ),
        (
            {"keep_interval_updates": 2, "keep_last_epochs": 1, "suffix": "-part"},
            set(),
        ),
    ],
)
def test_the_rules_of_fairseq(options: dict[str, Any], deleted: set[str], tmp_path: Path) -> None:
    assert surplus(tmp_path, **options) == deleted


def test_what_a_training_goes_on_from_is_spared(tmp_path: Path) -> None:
    options = {"keep_interval_updates": 1, "spared": "checkpoint_1_3.pt"}
    assert surplus(tmp_path, **options) == {"checkpoint_1_4.pt"}


def surplus(
    folder: Path, suffix: str = "", spared: str = "checkpoint_last.pt", **options: Any
) -> set[str]:
    """What is deleted of `FILES`."""
    for name in FILES:
        (folder / name).touch()
    delete_surplus(CheckpointConfig(save_dir=str(folder), **options), suffix, folder / spared)
    return FILES - {path.name for path in folder.iterdir()}
