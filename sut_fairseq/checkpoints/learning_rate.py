"""A resumed training has the learning rate that it would have without the interruption.

At the end of an epoch, fairseq saves before it passes the validation loss to the schedule, and does
not pass it on after loading. Nor does it save for how many epochs `reduce_lr_on_plateau` has waited
for a lower loss. And it looks whether the rate is below `--stop-min-lr` before each epoch, so also
when it resumes within one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

_WAITED = "num_bad_epochs"  # torch's name, beside fairseq's own entries of `lr_scheduler_state`


def keep_learning_rate(trainer: Any, extra_state: Mapping[str, Any] | None) -> None:
    """Bring the schedule to where it would be uninterrupted, and have its full state saved.

    Args:
        trainer: fairseq's, which has loaded a checkpoint if there is one.
        extra_state: what was restored besides parameters and optimizer; None if the schedule
            starts over.
    """
    plateau = getattr(trainer.lr_scheduler, "lr_scheduler", None)
    if isinstance(plateau, ReduceLROnPlateau):
        if extra_state is not None:
            last = trainer._optim_history[-1] if trainer._optim_history else {}
            plateau.num_bad_epochs = last.get("lr_scheduler_state", {}).get(_WAITED, 0)
        fairseqs = trainer.lr_scheduler.state_dict
        trainer.lr_scheduler.state_dict = lambda: {**fairseqs(), _WAITED: plateau.num_bad_epochs}
    if extra_state is not None:
        place, loss = extra_state["train_iterator"], extra_state.get("val_loss")
        if place.get("iterations_in_epoch") == 0 and loss is not None:
            trainer.lr_step(place["epoch"] - 1, loss)


def end_the_epoch(trainer: Any, extra_state: Mapping[str, Any]) -> None:
    """Let a training that was interrupted within an epoch end it, whatever the rate is by now.

    Args:
        trainer: fairseq's; its command asks for the rate next, to compare it with `--stop-min-lr`.
        extra_state: what was restored besides parameters and optimizer.
    """
    if extra_state["train_iterator"].get("iterations_in_epoch") == 0:
        return

    def first_answer() -> float:
        del trainer.get_lr  # the method of the class from now on
        return math.inf

    trainer.get_lr = first_answer
