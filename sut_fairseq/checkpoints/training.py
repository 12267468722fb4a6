"""How fairseq handles checkpoints while it trains something of ours."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager

from sut_fairseq._excepthook import is_command
from sut_fairseq._training_options import check_training
from sut_fairseq.checkpoints import writing
from sut_fairseq.checkpoints.averages import (
    average_numbers_alone,
    begun_with_parameters,
    keep_average,
)
from sut_fairseq.checkpoints.batches import keep_batches
from sut_fairseq.checkpoints.data_workers import keep_data_workers
from sut_fairseq.checkpoints.integrity import check_whole
from sut_fairseq.checkpoints.interruption import Interruption
from sut_fairseq.checkpoints.learning_rate import end_the_epoch, keep_learning_rate
from sut_fairseq.checkpoints.logged import keep_logged
from sut_fairseq.checkpoints.mismatch import explained
from sut_fairseq.checkpoints.patience import keep_patience
from sut_fairseq.checkpoints.progress import progress_of
from sut_fairseq.checkpoints.resuming import find_start
from sut_fairseq.checkpoints.save_folder import claim, telling_why
from sut_fairseq.checkpoints.stopping import LAST, Stop, call_main
from sut_fairseq.checkpoints.surplus import delete_surplus
from sut_fairseq.errors import InputError

_fairseq_save = checkpoint_utils.torch_persistent_save
_fairseq_load = checkpoint_utils.load_checkpoint

logger = logging.getLogger(__name__)


@functools.cache
def protect_trainings() -> None:
    """Protect our trainings in this process from losing anything when they are killed.

    Called where fairseq begins to use one of our models, tasks or criterions. From then on
    whatever fairseq saves appears whole or not at all. The rest applies only to our trainings. They
    resume from `checkpoint_last.pt`, or from the newest whole checkpoint if that is damaged, with
    the batches that they would have had; finished ones do not resume. Checkpoints that a killed
    training had no time to delete are deleted. A command stops in good order if a signal asks.
    """
    checkpoint_utils.PathManager = _WholeFiles
    checkpoint_utils.torch_persistent_save = _save
    checkpoint_utils.load_checkpoint = _load_checkpoint
    checkpoint_utils.verify_checkpoint_directory = telling_why(
        checkpoint_utils.verify_checkpoint_directory
    )
    average_numbers_alone()
    if is_command():
        distributed_utils.call_main = call_main


class _WholeFiles(PathManager):
    """fairseq's access to files, but a copy appears whole or not at all."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if PathManager.path_requires_pathmanager(dst_path):
            return bool(PathManager.copy(src_path, dst_path, overwrite=overwrite))
        writing.copy(Path(src_path), Path(dst_path))
        return True


def _save(obj: Any, filename: str, async_write: bool = False) -> None:
    """`torch_persistent_save`, but the data are on the disk before the name."""
    if async_write or PathManager.path_requires_pathmanager(filename):
        _fairseq_save(obj, filename, async_write=async_write)
    else:
        writing.save(obj, Path(filename))


def _load_checkpoint(cfg: Any, trainer: Any, **passthrough: Any) -> tuple[Any, Any]:
    """`load_checkpoint`, from a whole checkpoint and with the batches of an uninterrupted run."""
    if not _is_ours(trainer):
        return _fairseq_load(cfg, trainer, **passthrough)
    check_training(trainer.cfg, trainer.get_criterion())
    found = _as_the_first_says(trainer, functools.partial(_choose, cfg, trainer.checkpoint_suffix))
    start = cfg if found is None else _restoring(cfg, found, trainer.checkpoint_suffix)
    # Parameters of another model, with which fairseq starts a new training.
    fine_tunes = found is None and cfg.restore_file == LAST and cfg.finetune_from_model is not None
    try:
        with begun_with_parameters(trainer):
            extra_state, iterator = _fairseq_load(start, trainer, **passthrough)
    except Exception as error:
        sentence = explained(error, trainer.cfg.model, fine_tunes=fine_tunes)
        if sentence is None:
            raise
        raise sentence from error
    if found is not None and trainer.should_save_checkpoint_on_current_rank and not cfg.no_save:
        delete_surplus(cfg, trainer.checkpoint_suffix, spared=found)
    gone_on = extra_state is not None and not fine_tunes and not cfg.reset_dataloader
    iterator = keep_batches(trainer, iterator, extra_state["train_iterator"] if gone_on else None)
    if gone_on and not cfg.reset_meters:
        keep_logged(extra_state)
    if fine_tunes or cfg.reset_optimizer:
        trainer._previous_training_time = 0  # that of another training
    keep_average(trainer, None if fine_tunes else extra_state)
    same_schedule = gone_on and not (cfg.reset_lr_scheduler or cfg.reset_optimizer)
    keep_learning_rate(trainer, extra_state if same_schedule else None)
    new_best = fine_tunes or cfg.reset_meters or cfg.reset_optimizer
    waited = keep_patience(trainer, None if new_best else extra_state)
    _train_no_further_than_asked(trainer, waited)
    if is_command():
        if gone_on:
            end_the_epoch(trainer, extra_state)
        _end_when_told()
    return extra_state, iterator


def _is_ours(trainer: Any) -> bool:
    """Whether model, task or criterion come from this package, or derive from its classes."""
    parts = (trainer.get_model(), trainer.task, trainer.get_criterion())
    package = __name__.partition(".")[0]
    classes = (kind for part in parts for kind in type(part).__mro__)
    return any(kind.__module__.partition(".")[0] == package for kind in classes)


def _choose(cfg: Any, suffix: str) -> Path | None:
    """The checkpoint of the save folder to resume from; None: left to fairseq.

    Raises:
        InputError: another training uses the folder, an option names a checkpoint that is missing
            or damaged, or no training can resume from the last one.
    """
    folder = Path(cfg.save_dir)
    if is_command() and not cfg.no_save:
        claim(folder)
    writing.clear_leftovers(folder)
    if cfg.restore_file != LAST:
        _check_given("--restore-file", cfg.restore_file.replace(".pt", f"{suffix}.pt"))
        return None
    found = find_start(folder, suffix)
    if found is not None:
        if not cfg.reset_optimizer:
            _check_resumable(found)
    elif (once := getattr(cfg, "continue_once", None)) is not None:
        _check_given("--continue-once", once)
    elif cfg.finetune_from_model is not None:
        _check_given("--finetune-from-model", cfg.finetune_from_model)
    return found


def _check_given(option: str, path: str) -> None:
    """Refuse the checkpoint of an option if it is missing or damaged; URLs are left to fairseq.

    Raises:
        InputError: naming the option, or saying what is wrong with the file.
    """
    if Path(path).exists():
        check_whole(path)
    elif "://" not in path:
        raise InputError(
            f"{option} {path}: there is no such file; name one that there is, or leave the option "
            "out."
        )


def _check_resumable(path: Path) -> None:
    """Refuse a checkpoint with which fairseq would count updates from 0 again.

    Raises:
        InputError: if it lacks the state of the optimizer, or the place in the data.
    """
    progress = progress_of(path)
    if progress is not None and not progress.resumable:
        raise InputError(
            f"{path} has no state of the optimizer, as averages and exports have none, so that no "
            "training can resume from it: start one from it with --finetune-from-model and another "
            "--save-dir, or move it away."
        )


def _as_the_first_says(trainer: Any, decide: Callable[[], Path | None]) -> Path | None:
    """What the first process decides: all of them must load the same file.

    Raises:
        InputError: what the first process found wrong, in every process.
    """
    if trainer.data_parallel_world_size == 1:
        return decide()
    said: dict[str, str | None] = {"path": None, "problem": None}
    if trainer.data_parallel_rank == 0:
        try:
            path = decide()
            said["path"] = None if path is None else str(path)
        except InputError as error:
            said["problem"] = str(error)
    said = distributed_utils.broadcast_object(
        said, src_rank=0, group=trainer.data_parallel_process_group, dist_device=trainer.device
    )
    if said["problem"] is not None:
        raise InputError(said["problem"])
    return None if said["path"] is None else Path(said["path"])


def _restoring(cfg: Any, path: Path, suffix: str) -> Any:
    """The options of checkpoints, with one to restore; the options that are saved do not change."""
    if path.name == f"checkpoint_last{suffix}.pt":
        return cfg
    changed = copy.deepcopy(cfg)
    # fairseq inserts the suffix.
    changed.restore_file = str(path.with_name(path.name.removesuffix(f"{suffix}.pt") + ".pt"))
    changed.finetune_from_model = None
    return changed


def _train_no_further_than_asked(trainer: Any, waited: int) -> None:
    """Let a finished training end: fairseq checks its length only after an update.

    Args:
        trainer: fairseq's.
        waited: for how many validations the result has not improved.
    """
    patience = trainer.cfg.checkpoint.patience
    options, updates = trainer.cfg.optimization, trainer.get_num_updates()
    hours = trainer._previous_training_time / 3600  # of the sessions before this one
    reason = ""
    if options.max_update and updates >= options.max_update:
        reason = f"{updates} updates of --max-update {options.max_update}"
    elif 0 < options.stop_time_hours < hours:
        reason = f"{hours:.3g} hours of --stop-time-hours {options.stop_time_hours}"
    elif 0 < patience <= waited:
        reason = f"{waited} validations without a better result, of --patience {patience}"
    if reason:
        logger.info("this training is finished: it has had %s", reason)
        options.max_epoch = -1  # ends fairseq's loop over epochs before the first; 0 is no limit


@functools.cache
def _end_when_told() -> None:
    """Let signals end the training after an update."""
    keep_data_workers()
    interruption = Interruption()
    Stop(interruption).install()
    interruption.listen()
