"""The end of an interrupted training: after an update, with a checkpoint."""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from sut_fairseq._mistakes import divergence
from sut_fairseq.checkpoints.interruption import UNFINISHED, Interruption, pass_on_signals
from sut_fairseq.errors import InputError

# Where the functions of fairseq-train are: in its module, or in the program itself (`python -m
# fairseq_cli.train`).
TRAINING_MODULES = ("fairseq_cli.train", "__main__")
_AFTER_UPDATE = "validate_and_save"

LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file

_fairseq_call_main = distributed_utils.call_main

# In the text of a traceback: the separator of two exceptions, and the final error.
_CHAINED = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\n\n"
)
_RAISED = re.compile(
    r"^(?:\w+\.)*(InputError|FloatingPointError): (.*)\Z", re.DOTALL | re.MULTILINE
)

logger = logging.getLogger(__name__)


def call_main(cfg: Any, main: Callable[..., Any], **options: Any) -> None:
    """fairseq's `call_main`, which passes signals on to the processes that it starts, if any.

    It starts one for each GPU of this machine, and waits for them.
    """
    pass_on_signals()
    try:
        _fairseq_call_main(cfg, main, **options)
    except ProcessExitedException as error:
        if error.exit_code == UNFINISHED:
            raise SystemExit(UNFINISHED) from None
        raise
    except ProcessRaisedException as error:
        meant = _meant(str(error))
        if meant is None:
            raise
        raise meant from None


def _meant(traceback: str) -> InputError | None:
    """The `InputError` that the text of a traceback ends in or means, in `_mistakes`'s words.

    That text is all that comes back from a process.
    """
    *before, last = _CHAINED.split(traceback.rstrip())
    if before and "Cannot load model parameters" in last:
        last = before[-1]  # fairseq's trainer replaced ours with its own
    raised = _RAISED.search(last)
    if raised is None:
        return None
    kind, text = raised.groups()
    return InputError(text) if kind == "InputError" else divergence(text)


class Stop:
    """Ends trainings of this process that were told to stop.

    An update that fairseq saves anyway is validated first, as it is without a signal, so that the
    best checkpoint is chosen among the same ones. Any other is saved without validation.
    """

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._saved_at = -1

    def install(self) -> None:
        """Check for signals after every update of fairseq-train, however it was started."""
        for name in TRAINING_MODULES:
            module = sys.modules.get(name)
            fairseqs = getattr(module, _AFTER_UPDATE, None)
            if fairseqs is not None:
                setattr(module, _AFTER_UPDATE, self._after(fairseqs))
        checkpoint_utils.save_checkpoint = self._noting(checkpoint_utils.save_checkpoint)

    def _noting(self, save_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
        """`save_checkpoint`, which notes the update in every process, whether it writes or not."""

        @functools.wraps(save_checkpoint)  # fairseq keeps the best score as its attribute
        def noting(cfg: Any, trainer: Any, *rest: Any) -> Any:
            saved = save_checkpoint(cfg, trainer, *rest)
            self._saved_at = trainer.get_num_updates()
            return saved

        return noting

    def _after(self, validate_and_save: Callable[..., Any]) -> Callable[..., Any]:
        """`validate_and_save`, then the end if a signal asked for it and it has not come anyway."""

        @functools.wraps(validate_and_save)
        def after(cfg: Any, trainer: Any, task: Any, epoch_itr: Any, *rest: Any) -> Any:
            try:
                losses, finished = validate_and_save(cfg, trainer, task, epoch_itr, *rest)
            except RuntimeError as error:
                if not self._cut_off(error, trainer):
                    raise
                logger.warning("the validation was cut off: its workers were killed")
                losses, finished = [None], False
            except KeyError as error:
                metric = cfg.checkpoint.best_checkpoint_metric
                if error.args != (metric,):
                    raise
                raise self._unknown_metric(cfg.checkpoint, trainer, epoch_itr, metric) from error
            if not finished and self._asked(trainer):
                self._end(cfg.checkpoint, trainer, epoch_itr, losses[0])
            return losses, finished

        return after

    def _unknown_metric(self, cfg: Any, trainer: Any, epoch_itr: Any, metric: str) -> InputError:
        """Save what fairseq would lose, and say so: it looks the metric up before it saves."""
        checkpoint_utils.save_checkpoint(cfg, trainer, epoch_itr, None)
        return InputError(
            f"--best-checkpoint-metric {metric}: validation computes no `{metric}`; give a number "
            "that its line in the log shows (bleu needs --eval-bleu, for example). Training "
            f"stopped after update {trainer.get_num_updates()}: {_whereabouts(cfg)}."
        )

    def _asked(self, trainer: Any) -> bool:
        """Whether any process was told to stop: then all stop, after the same update."""
        asked = self._interruption.asked is not None
        if trainer.data_parallel_world_size == 1:
            return asked
        flag = torch.tensor(int(asked), device=trainer.device)
        group = trainer.data_parallel_process_group
        return bool(distributed_utils.all_reduce(flag, group, op="max").item())

    def _cut_off(self, error: RuntimeError, trainer: Any) -> bool:
        """Whether data workers were killed after the signal; the signal alone does not end them.

        With several processes, the others wait for this one's part of the validation, and nothing
        can be saved together.
        """
        told = self._interruption.asked is not None and trainer.data_parallel_world_size == 1
        return told and "DataLoader worker" in str(error)

    def _end(self, cfg: Any, trainer: Any, epoch_itr: Any, loss: float | None) -> None:
        updates = trainer.get_num_updates()
        if self._saved_at != updates:
            if loss is not None and epoch_itr.end_of_epoch():
                # What fairseq would do next. The save gets no loss, or it might count as the best.
                trainer.lr_step(epoch_itr.epoch, loss)
            checkpoint_utils.save_checkpoint(cfg, trainer, epoch_itr, None)
        logger.info("interrupted after update %d: %s", updates, _whereabouts(cfg))
        raise SystemExit(UNFINISHED)


def _whereabouts(cfg: Any) -> str:
    """Where a training that ends early is saved, and how it goes on."""
    if cfg.no_save or cfg.no_last_checkpoints:
        return "the options let only some checkpoints be saved, or none"
    saved = f"it is saved in {cfg.save_dir}, where the same command goes on"
    if cfg.restore_file != LAST:
        saved += " without --restore-file, which would start from that file again"
    return saved
