"""Changes to a process in which fairseq uses this package."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sut_fairseq._excepthook import show_input_errors_as_sentences
from sut_fairseq._mistakes import NO_BUCKETS
from sut_fairseq._workers import join_workers, prepare_workers
from sut_fairseq.checkpoints.training import protect_trainings
from sut_fairseq.errors import InputError, check


def prepare_process(arguments: Namespace | None = None) -> None:
    """Make errors readable, trainings safe, and several processes train together.

    Called first wherever fairseq begins to use one of our architectures, models, tasks or
    criterions: importing the package does none of this.

    Args:
        arguments: the parsed command line, where an architecture fills in its options.
    """
    show_input_errors_as_sentences()
    protect_trainings()
    if arguments is None:
        prepare_workers()
    else:
        refuse_buckets(arguments)
        join_workers(arguments)


def check_target_padding(
    task: Any, why: str = "labels and exact match are read from the first column of targets on"
) -> None:
    """Refuse a task whose targets are padded at their start.

    Args:
        task: fairseq's, of today's kind or of the one that keeps its options as `args`.
        why: the reason.

    Raises:
        InputError: naming the option.
    """
    options = getattr(task, "cfg", None) or getattr(task, "args", None)
    padded = getattr(options, "left_pad_target", False)
    check(padded in (False, "False"), "--left-pad-target", f"False: {why}", padded)


def refuse_buckets(options: Any) -> None:
    """Refuse `--num-batch-buckets`, with which fairseq fails where numpy is 2.4 or newer.

    It also pads sources before a task of ours can put a begin token before their first word.

    Args:
        options: fairseq's, with or without those of a task.

    Raises:
        InputError: if sentences are to be padded to the lengths of buckets.
    """
    if getattr(options, "num_batch_buckets", 0):
        raise InputError(NO_BUCKETS)
