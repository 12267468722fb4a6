"""Changes to a process in which fairseq uses this package."""

from __future__ import annotations

from argparse import Namespace

from sut_fairseq._excepthook import show_input_errors_as_sentences
from sut_fairseq._workers import join_workers, prepare_workers
from sut_fairseq.checkpoints.training import protect_trainings


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
        join_workers(arguments)
