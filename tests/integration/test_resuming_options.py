"""Options with which fairseq itself would not go on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.commands import TINY, train, words
from tests.integration.test_resuming import UPDATES, assert_same_end, curve, load

AVERAGE = "--store-ema --ema-decay 0.5"
FALLING = "--lr-scheduler inverse_sqrt --warmup-updates 2 --warmup-init-lr 6e-4"


@pytest.mark.parametrize(
    ("options", "start", "done"),
    [
        ("--curriculum 1", "checkpoint1.pt", 5),
        pytest.param("--curriculum 1", "checkpoint_1_3.pt", 3, marks=pytest.mark.slow),
        (f"{FALLING} --stop-min-lr 5.5e-4", "checkpoint_2_8.pt", 8),  # its rate is lower
        ("--log-interval 3", "checkpoint1.pt", 5),
        (f"{AVERAGE} --ema-update-freq 2", "checkpoint_1_3.pt", 3),
    ],
)
def test_a_kill_changes_nothing(
    options: str, start: str, done: int, data: Path, tmp_path: Path
) -> None:
    folders = tmp_path / "whole", tmp_path / "resumed"
    length = ("--max-update", min(done + 4, UPDATES), "--save-interval-updates", done)
    flags = (*TINY, *length, *words(options))
    uninterrupted = train(data, folders[0], *flags)
    resumed = train(data, folders[1], *flags, "--restore-file", folders[0] / start)
    lines = [line for line in curve(uninterrupted) if int(line["num_updates"]) > done]
    assert curve(resumed) == lines and lines
    assert_same_end(*folders)
    ends = [load(folder / "checkpoint_last.pt")["extra_state"] for folder in folders]
    assert ends[0].keys() == ends[1].keys()
    torch.testing.assert_close(ends[0].get("ema"), ends[1].get("ema"), rtol=0, atol=0)


def test_a_curriculum_ends(data: Path, tmp_path: Path) -> None:
    """Batches are in the order of their lengths in its epochs, and at random after them."""
    options = (*TINY, "--curriculum", 2, "--max-update", 2 * UPDATES, "--max-epoch", 4)
    options += ("--no-save", "--disable-validation")
    lengths = [line["wpb"] for line in curve(train(data, tmp_path, *options))]
    epochs = [lengths[place : place + 5] for place in range(0, 20, 5)]
    assert epochs[0] == epochs[1]
    assert epochs[2] != epochs[0] and sorted(epochs[2]) == sorted(epochs[0])
    assert epochs[3] != epochs[2]


def test_a_model_starts_with_the_time_of_no_other(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "first", *TINY)
    start = tmp_path / "first" / "checkpoint_last.pt"
    state = load(start)
    state["extra_state"]["previous_training_time"] = 36000.0  # seconds
    torch.save(state, start)
    options = (*TINY, "--stop-time-hours", 1)
    finished = train(data, tmp_path / "second", *options, "--finetune-from-model", start)
    assert [line["num_updates"] for line in curve(finished)] == ["1", "2"]
    again = train(data, tmp_path / "third", *options, "--restore-file", start, "--max-update", 3)
    assert "this training is finished: it has had 10 hours" in again.stdout and not curve(again)


def test_an_average_begins_with_the_parameters(data: Path, tmp_path: Path) -> None:
    """That of a checkpoint which has none, of another training or of this one."""
    train(data, tmp_path / "first", *TINY)
    start = tmp_path / "first" / "checkpoint_last.pt"
    for name, options in (("second", ("--finetune-from-model", start)), ("first", ())):
        finished = train(
            data, tmp_path / name, *TINY, *words(AVERAGE), "--lr", 0, *options, "--max-update", 3
        )
        assert "no moving average: it begins with the parameters" in finished.stdout
        state = load(tmp_path / name / "checkpoint_last.pt")
        torch.testing.assert_close(state["extra_state"]["ema"], load(start)["model"])
