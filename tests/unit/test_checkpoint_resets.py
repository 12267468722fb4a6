"""What a training takes over from the checkpoint that it begins with, and what it forgets."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq.dataclass.configs import CheckpointConfig
from omegaconf import OmegaConf

from sut_fairseq.checkpoints import training
from sut_fairseq.checkpoints.learning_rate import keep_learning_rate
from sut_fairseq.checkpoints.patience import keep_patience
from tests.unit.test_checkpoint_training import Derived, trainer_of

KEEPING = ("keep_batches", "keep_learning_rate", "keep_patience", "keep_logged")


def load(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch, found: Path | None, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """Load a checkpoint: the trainer, and what was kept of the state, by function."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(training, "_fairseq_load", lambda *_, **__: (state, "iterator"))
    monkeypatch.setattr(training, "_choose", lambda *_: found)
    for name in ("check_training", "_train_no_further_than_asked"):
        monkeypatch.setattr(training, name, lambda *_: None)
    monkeypatch.setattr(training, "is_command", lambda: False)
    for name in (*KEEPING, "delete_surplus"):

        def note(*given: Any, name: str = name, **named: Any) -> None:
            kept[name] = [*given, *named.values()][-1]

        monkeypatch.setattr(training, name, note)
    trainer = trainer_of(None, None, Derived.__new__(Derived))
    trainer.cfg = SimpleNamespace(distributed_training=None, ema=SimpleNamespace(store_ema=False))
    trainer.checkpoint_suffix = ""
    trainer.should_save_checkpoint_on_current_rank = True
    trainer._previous_training_time = 7.0
    training._load_checkpoint(OmegaConf.structured(CheckpointConfig(**options)), trainer)
    return trainer, kept


@pytest.mark.parametrize(
    ("reset", "kept"),
    [
        ({}, (True, True, True, True)),
        ({"reset_dataloader": True}, (False, False, True, False)),
        ({"reset_lr_scheduler": True}, (True, False, True, True)),
        ({"reset_optimizer": True}, (True, False, False, True)),
        ({"reset_meters": True}, (True, True, False, False)),
    ],
    ids=str,
)
def test_what_is_reset_begins_anew(
    reset: dict[str, bool],
    kept: tuple[bool, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches, learning rate, best result and logged means, as far as fairseq is to forget them."""
    state = {"train_iterator": {"epoch": 3}}
    trainer, found = load(state, monkeypatch, None, save_dir=str(tmp_path), **reset)
    whole = (state["train_iterator"], state, state, state)
    for name, one, is_kept in zip(KEEPING, whole, kept, strict=True):
        assert found.get(name) == (one if is_kept else None), name
    # The time of another training does not count towards --stop-time-hours.
    assert trainer._previous_training_time == (0 if "reset_optimizer" in reset else 7)


@pytest.mark.parametrize("no_save", [False, True])
def test_surplus_is_deleted_where_something_may_be_saved(
    no_save: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "checkpoint_last.pt"
    options = dict(save_dir=str(tmp_path), no_save=no_save)
    _, found = load({"train_iterator": {"epoch": 3}}, monkeypatch, last, **options)
    assert found.get("delete_surplus") == (None if no_save else last)


@pytest.mark.parametrize(
    ("done", "loss", "told"),
    [(0, 1.5, [(2, 1.5)]), (0, None, []), (4, 1.5, [])],
    ids=["at the end of epoch 2", "not validated", "within epoch 3"],
)
def test_the_schedule_is_told_the_loss_of_the_epoch_that_has_ended(
    done: int, loss: float | None, told: list[tuple[int, float]]
) -> None:
    """Which fairseq would do after saving."""
    seen: list[tuple[int, float]] = []
    trainer = SimpleNamespace(
        lr_scheduler=SimpleNamespace(), lr_step=lambda epoch, loss: seen.append((epoch, loss))
    )
    place = {"epoch": 3, "iterations_in_epoch": done}
    keep_learning_rate(trainer, {"train_iterator": place, "val_loss": loss})
    assert seen == told


def test_patience_of_another_training_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq keeps it at a function: a new training forgets it, a resumed one has its own."""

    def should_stop_early() -> None:
        pass

    module = SimpleNamespace(should_stop_early=should_stop_early)
    monkeypatch.setitem(sys.modules, "fairseq_cli.train", module)
    saved: list[dict[str, Any]] = []
    own = {"best": 1.5, "num_runs": 2}
    for state, waited, expected in ((None, 0, {}), ({"patience": own}, 2, own)):
        vars(should_stop_early).update(best=2.5, num_runs=3)
        trainer = SimpleNamespace(save_checkpoint=lambda filename, extra: saved.append(extra))
        assert keep_patience(trainer, state) == waited
        assert vars(should_stop_early) == expected
        trainer.save_checkpoint("checkpoint_last.pt", {"epoch": 3})
    assert saved == [{"epoch": 3}, {"epoch": 3, "patience": own}]
