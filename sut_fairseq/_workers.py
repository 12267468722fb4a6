"""Several processes that train one model together: what fairseq leaves out or gets wrong.

fairseq looks for a launcher (torchrun, or whatever sets `WORLD_SIZE`, `RANK`, `MASTER_ADDR` and
`MASTER_PORT`) only where it sees several GPUs; elsewhere each process trains a copy of its own. Its
data-parallel wrapper specifies a GPU even on a CPU. It cannot resume several processes with a
torch whose `torch.load` is safe by default, because rank 0 sends the others more than tensors. And
when too few batches are left for all processes at the end of an epoch, those without one reuse an
old batch that must not count; with `--update-freq` fairseq then omits the real batches of such a
process from the sum that gradients are divided by.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from typing import Any

import torch
from fairseq.models import distributed_fairseq_model
from torch import distributed, nn

from sut_fairseq._excepthook import is_training, program
from sut_fairseq._training_options import BACKENDS, check_parallelism
from sut_fairseq.errors import InputError, check

# Key of a batch, True if fairseq reuses an old batch because none is left.
IGNORED = "ignored"

_LAUNCHER = ("RANK", "MASTER_ADDR", "MASTER_PORT")
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
_START = "torchrun --nproc-per-node 2 $(which fairseq-train) ... --cpu"


def join_workers(arguments: Namespace) -> None:
    """Make the options of fairseq-train those of one of the launched processes.

    Call it where fairseq begins to use one of our architectures. Without a launcher, or for
    options of a model alone, it changes next to nothing; our own commands train nothing.

    Raises:
        InputError: if each process would train its own copy, or for a kind of data parallelism that
            these models do not support.
    """
    if program().name.startswith("sut-") or not hasattr(arguments, "distributed_world_size"):
        return
    check_parallelism(arguments, arguments)
    on_cpu = arguments.cpu or not torch.cuda.is_available()
    launched = launched_workers()
    if launched > 1:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _end_with_torchrun()
        arguments.distributed_world_size = launched
        if on_cpu:
            arguments.distributed_init_method = "env://"
            arguments.distributed_rank = int(os.environ["RANK"])
            arguments.distributed_no_spawn = True
            arguments.distributed_backend = "gloo"
            arguments.device_id = 0
    elif on_cpu and arguments.distributed_world_size == torch.cuda.device_count():
        arguments.distributed_world_size = 1  # fairseq's default: the GPUs that are not used
    workers = arguments.distributed_world_size
    if workers == 1:
        return
    if on_cpu and launched == 1:
        raise InputError(
            f"--distributed-world-size {workers} starts no processes on a CPU: start them with a "
            f"launcher ({_START})."
        )
    arguments.load_checkpoint_on_all_dp_ranks = True


def _end_with_torchrun() -> None:
    """Have this process told to stop (and save) when torchrun dies, as it does of SIGUSR1."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def launched_workers() -> int:
    """Number of processes that a launcher has started, this one included; 1 without a launcher.

    Raises:
        InputError: if `WORLD_SIZE` is not a number of processes, or the environment does not say
            which one this is.
    """
    given = os.environ.get("WORLD_SIZE") or "1"
    check(given.strip().isdecimal(), "WORLD_SIZE", "a number of processes, or not set", given)
    workers = int(given)
    absent = [name for name in _LAUNCHER if name not in os.environ]
    if workers > 1 and absent:
        raise InputError(
            f"WORLD_SIZE is {workers}, but a launcher would also set {', '.join(absent)}: start "
            f"fairseq-train with one ({_START}), or unset WORLD_SIZE."
        )
    return workers


def prepare_workers() -> None:
    """Patch fairseq's trainer if this process is one of several that train together.

    Call it before a model or a criterion is built. With one process nothing changes.

    Raises:
        InputError: in a training command that was launched as one of several processes but has not
            joined the others; within fairscale's wrapper for sharded parameters, which Hydra's
            options can reach without passing through an architecture.
    """
    fairscale = sys.modules.get("fairscale.nn.wrap.auto_wrap")
    sharded = fairscale is not None and fairscale.ConfigAutoWrap.in_autowrap_context
    check(not sharded, "ddp_backend", BACKENDS, "fully_sharded")
    if distributed.is_available() and distributed.is_initialized():
        if distributed.get_world_size() > 1:
            _mend_trainer()
    elif is_training() and launched_workers() > 1:
        raise InputError(
            f"a launcher started {launched_workers()} processes, but fairseq would train a copy of "
            "the model in each: take fairseq-train and one of this package's architectures "
            "(--arch), or give fairseq-hydra-train distributed_training.distributed_world_size."
        )


@cache
def _mend_trainer() -> None:
    from fairseq.trainer import Trainer  # only here: nothing but training needs it

    replicate = distributed_fairseq_model.DistributedDataParallel
    distributed_fairseq_model.DistributedDataParallel = _without_gpu_on_cpu(replicate)
    Trainer._prepare_sample = _marking_ignored_batches(Trainer._prepare_sample)


def _without_gpu_on_cpu(replicate: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """torch's DistributedDataParallel, without the GPU that fairseq specifies even on a CPU."""

    @wraps(replicate, updated=())
    def wrapped(module: nn.Module, **options: Any) -> nn.Module:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            options |= {"device_ids": None, "output_device": None}
        return replicate(module, **options)

    return wrapped


def _marking_ignored_batches(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's `_prepare_sample`, changed so that our criterions discount old batches.

    It returns a batch and whether that is an old one, which must not count. The trainer checks only
    the last batch of an update, and then forgets the real ones before it. Our criterions count an
    old batch as 0 in every sum, so the trainer need not know of it.
    """

    @wraps(prepare)
    def prepared(trainer: Any, sample: Any, is_dummy: bool = False) -> tuple[Any, bool]:
        batch, ignored = prepare(trainer, sample, is_dummy)
        criterion = trainer.get_criterion()
        # In validation fairseq itself does it right, and tasks add counts of their own to the log.
        if ignored and criterion.training and getattr(criterion, "knows_ignored_batches", False):
            return {**batch, IGNORED: True}, False
        return batch, ignored

    return prepared
