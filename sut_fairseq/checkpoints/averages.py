"""A moving average of the parameters (`--store-ema`) that survives interruptions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA

logger = logging.getLogger(__name__)


def average_numbers_alone() -> None:
    """Let integers be copied, not averaged: checksums of words have no average."""
    init = EMA.__init__

    @functools.wraps(init)
    def started(self: Any, model: torch.nn.Module, *arguments: Any, **more: Any) -> None:
        init(self, model, *arguments, **more)
        whole = {key for key, x in model.state_dict().items() if not torch.is_floating_point(x)}
        self.skip_keys = {*self.skip_keys, *whole}

    EMA.__init__ = started


@contextmanager
def begun_with_parameters(trainer: Any) -> Iterator[None]:
    """Let an average that a checkpoint lacks begin with its parameters.

    fairseq means to do so too, but has deleted them by then.
    """
    read: Callable[..., Any] = checkpoint_utils.load_checkpoint_to_cpu

    def with_average(*arguments: Any, **options: Any) -> Any:
        state = read(*arguments, **options)
        extra = state.get("extra_state")
        if extra is not None and "ema" not in extra:
            logger.info("the checkpoint has no moving average: it begins with the parameters")
            extra["ema"] = dict(state["model"])
        return state

    if trainer.cfg.ema.store_ema:
        checkpoint_utils.load_checkpoint_to_cpu = with_average
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu = read


def keep_average(trainer: Any, extra_state: Mapping[str, Any] | None) -> None:
    """Average after the updates after which an uninterrupted training would.

    Args:
        trainer: fairseq's, which has loaded a checkpoint if there is one.
        extra_state: what was restored besides parameters and optimizer; None in a new training.
    """
    options = trainer.cfg.ema
    if options.store_ema and extra_state is not None:
        # fairseq counts them in this process alone.
        trainer.ema.update_freq_counter = trainer.get_num_updates() % options.ema_update_freq
