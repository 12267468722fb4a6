"""A resumed training logs what it would have logged without the interruption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairseq.logging import metrics

_OVER_EPOCHS = "train_inner"  # means over --log-interval updates, also across the end of an epoch


def keep_logged(extra_state: Mapping[str, Any]) -> None:
    """Restore the means that fairseq forgets if it resumes at the end of an epoch.

    Args:
        extra_state: what was restored besides parameters and optimizer.
    """
    begins = extra_state["train_iterator"].get("iterations_in_epoch") == 0
    saved = extra_state.get("metrics") or {}
    if begins and _OVER_EPOCHS in saved:
        metrics.load_state_dict({_OVER_EPOCHS: saved[_OVER_EPOCHS]})
