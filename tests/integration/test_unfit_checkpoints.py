"""Checkpoints from which a training cannot go on: one sentence, and no file is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.commands import TINY, train, words


@pytest.fixture(scope="module")
def short(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("short")
    train(data, folder, *TINY, "--no-epoch-checkpoints")
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "--lr-scheduler reduce_lr_on_plateau",
            "the checkpoint was trained with another --lr-scheduler: repeat the options of its "
            "training, or choose another --save-dir, or give --reset-lr-scheduler.",
        ),
        (
            "--encoder-embed-dim 64",
            "is another one (its encoder_embed_dim is 32, not 64): repeat the options of its "
            "training, or choose another --save-dir.",
        ),
        (
            "--criterion label_smoothed_cross_entropy",
            "the checkpoint was trained with another --criterion: repeat the options of its "
            "training, or choose another --save-dir, or give --reset-optimizer.",
        ),
        (
            "--no-save-optimizer-state",
            "--no-save-optimizer-state leaves out what a training resumes from",
        ),
    ],
)
def test_other_options(given: str, sentence: str, data: Path, short: Path) -> None:
    before = short.read_bytes()
    refused = train(data, short.parent, *TINY, *words(given), "--max-update", 3, ok=False)
    assert "Traceback" not in refused.stderr
    assert sentence in refused.last_line
    assert short.read_bytes() == before


def test_fine_tuning_another_model(data: Path, short: Path, tmp_path: Path) -> None:
    """Only the settings that decide shapes are named, and what may differ."""
    given = (*words("--encoder-embed-dim 64 --dropout 0.3 --encoder-layers 5 --ffn-top-k 1"),)
    given = (*TINY, *given, "--finetune-from-model", short)
    refused = train(data, tmp_path, *given, ok=False)
    assert refused.last_line.endswith(
        f"the model in {short} is another one (its encoder_embed_dim is 32, not 64): to train it "
        "further, give the --arch of its training and all options of it that decide shapes; "
        "others, such as --dropout, may differ."
    )


def test_without_the_state_of_the_optimizer(data: Path, short: Path, tmp_path: Path) -> None:
    """fairseq would count updates from 0."""
    state = torch.load(short, weights_only=True)
    del state["last_optimizer_state"]
    torch.save(state, tmp_path / short.name)
    longer = (*TINY, "--max-update", 3)
    refused = train(data, tmp_path, *longer, ok=False)
    assert "has no state of the optimizer, as averages and exports have none" in refused.last_line
    reset = train(data, tmp_path, *longer, *words("--reset-optimizer --reset-lr-scheduler"))
    assert len(reset.logged("train_inner")) == 3
    given = ("--finetune-from-model", tmp_path / "typo.pt")
    refused = train(data, tmp_path / "new", *longer, *given, ok=False)
    assert "typo.pt: there is no such file; name one that there is" in refused.last_line


def test_hours_that_are_over(data: Path, short: Path, tmp_path: Path) -> None:
    hours = ("--stop-time-hours", 1e-6, "--max-update", 9, "--no-epoch-checkpoints")
    assert len(train(data, tmp_path, *TINY, *hours).logged("train_inner")) == 1
    again = train(data, tmp_path, *TINY, *hours)
    assert "hours of --stop-time-hours 1e-06" in again.stdout
    assert again.logged("train_inner") == []
