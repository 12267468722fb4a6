"""Refuses, or warns of, training options that do not fit together or do not fit this machine.

An architecture of ours checks the command line of fairseq-train before anything is built. Hydra's
options and those of other models pass through none, so the start of a training checks them too.
"""

from __future__ import annotations

import ast
import logging
from functools import cache
from typing import Any

import torch

from sut_fairseq.errors import InputError, check

logger = logging.getLogger(__name__)

BACKENDS = "pytorch_ddp or legacy_ddp"  # and fairseq's older names of them
_BACKENDS = ("pytorch_ddp", "c10d", "legacy_ddp", "no_c10d")


def check_training(cfg: Any, criterion: object) -> None:
    """Check the options of a training that begins.

    Args:
        cfg: fairseq's options, by group.
        criterion: of the training.

    Raises:
        InputError: naming an option.
    """
    check_length(cfg.optimization)
    for batches in cfg.optimization.update_freq:
        check(batches >= 1, "--update-freq", "at least 1", batches)
    _check_betas(cfg.optimizer)
    check_parallelism(cfg.distributed_training, cfg.checkpoint)
    check_precision(cfg.common, cfg.criterion)
    if cfg.common.quantization_config_path is not None:
        raise InputError(
            "--quantization-config-path replaces layers during the training, and fairseq can load "
            "no checkpoint with such layers: leave the option out."
        )
    _warn_of_plain_criterion(cfg, criterion)


def check_length(options: Any) -> None:
    """Refuse a negative length, with which a training would end before its first update.

    Args:
        options: fairseq's options for the length; any of them may be missing.

    Raises:
        InputError: naming the option.
    """
    for name in ("max_update", "max_epoch"):
        length = getattr(options, name, None) or 0
        flag = f"--{name.replace('_', '-')}"
        check(length >= 0, flag, "at least 1, or 0 for no limit", length)


def _check_betas(optimizer: Any) -> None:
    """fairseq takes any text for Adam's betas, and fails in the first update."""
    text = getattr(optimizer, "adam_betas", None)
    if not isinstance(text, str):
        return
    try:
        first, second = (float(number) for number in ast.literal_eval(text))
        fits = 0 <= first < 1 and 0 <= second < 1
    except (SyntaxError, TypeError, ValueError):
        fits = False
    check(fits, "--adam-betas", "two numbers from 0 to less than 1, such as '(0.9, 0.98)'", text)


def check_parallelism(workers: Any, checkpoints: Any) -> None:
    """Refuse ways of training that these models do not support or that endanger checkpoints.

    Args:
        workers: fairseq's options for distributed training.
        checkpoints: fairseq's options for checkpoints.

    Raises:
        InputError: naming the option.
    """
    backend = str(workers.ddp_backend)
    check(backend in _BACKENDS, "ddp_backend", BACKENDS, backend)
    if checkpoints.no_save_optimizer_state and not checkpoints.no_save:
        raise InputError(
            "--no-save-optimizer-state leaves out what a training resumes from: leave the option "
            "out (`sut-export` and `sut-average` write weights alone)."
        )
    if checkpoints.write_checkpoints_asynchronously:
        raise InputError(
            "--write-checkpoints-asynchronously keeps no checkpoint_last.pt, and a killed training "
            "can leave half a file: leave the option out."
        )


def check_precision(common: Any, criterion: Any) -> None:
    """Refuse options for half precision that exclude each other or need a GPU, or warn of them.

    Args:
        common: fairseq's options for precision and device; any of them may be missing.
        criterion: options of a criterion.

    Raises:
        InputError: naming the options.
    """
    given = [flag for flag in ("fp16", "bf16", "amp") if _is_on(common, flag)]
    given += ["autocast"] * _is_on(criterion, "autocast")
    if len(given) > 1:
        flags = " and ".join(f"--{name}" for name in given)
        raise InputError(
            f"{flags} are different ways to compute in half precision: give one of them (with a "
            "GPU for bfloat16: --autocast bfloat16)."
        )
    if not getattr(common, "cpu", False) and torch.cuda.is_available():
        return
    for options, name in ((common, "fp16"), (criterion, "cuda_graphs")):
        flag = f"--{name.replace('_', '-')}"
        if _is_on(options, name):
            raise InputError(
                f"{flag} needs a GPU, but there is none or --cpu is given: drop {flag}."
            )
    if "amp" in given:
        _warn_once(
            "--amp has no effect on a CPU: the model computes in float32; drop it, or give "
            "--autocast bfloat16 instead."
        )


def _warn_of_plain_criterion(cfg: Any, criterion: object) -> None:
    """Say what experts lack with fairseq's criterions, of which one is the default."""
    experts = (getattr(cfg.model, name, None) for name in ("attention_experts", "ffn_experts"))
    plain = type(criterion).__module__.startswith("fairseq.")
    if plain and any(number and number > 1 for number in experts):
        logger.warning(
            "--criterion %s has no auxiliary losses, so nothing keeps the experts in use, and it "
            "logs neither their load nor depths: give --criterion cross_entropy_with_auxiliary "
            "with --mutual-information-weight 0.001, say.",
            cfg.criterion._name,
        )


@cache
def _warn_once(sentence: str) -> None:
    logger.warning(sentence)


def _is_on(options: Any, flag: str) -> bool:
    return getattr(options, flag, False) not in (False, None, "none", 0)
