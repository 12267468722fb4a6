"""A resumed training gets the batches that it would have had without the interruption.

fairseq groups sentences into batches once, at random, and shuffles these groups anew for every
epoch. The grouping is seeded by the epoch in which the process started, so a process that starts
later makes other groups. Here the place in the data that a checkpoint holds also records the epoch
that the groups were made for.

Whether groups are shuffled is decided in the first epoch of a process, and never again: with
`--curriculum` fairseq shuffles them only after an interruption. Here every epoch is as asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MADE_FOR = "batches_made_for_epoch"  # beside fairseq's own entries of `train_iterator`


def keep_batches(trainer: Any, iterator: Any, state: Mapping[str, Any] | None) -> Any:
    """The iterator to train with; its place in the data names the epoch of its batches, too.

    It is the given one, unchanged, for a data set that fairseq groups anew in every epoch.

    Args:
        trainer: fairseq's.
        iterator: the one that fairseq would train with.
        state: the restored place in the data; None at the start of a training. If it lacks our
            entry, which fairseq itself does not write, the training is assumed to be uninterrupted.
    """
    reused = trainer.task.dataset_to_epoch_iter
    cached = [dataset for dataset, known in reused.items() if known is iterator]
    if not cached:
        return iterator
    epoch = iterator.epoch
    if state is not None:
        epoch = state.get(MADE_FOR, 1)
        if epoch != iterator.epoch:
            del reused[cached[0]]
            iterator = trainer.get_train_iterator(epoch, load_dataset=False)
            iterator.load_state_dict(state)
    _shuffle_as_asked(iterator)
    fairseqs = iterator.state_dict
    iterator.state_dict = lambda: {**fairseqs(), MADE_FOR: epoch}
    return iterator


def _shuffle_as_asked(iterator: Any) -> None:
    make = iterator._get_iterator_for_epoch

    def made(epoch: int, shuffle: bool, **options: Any) -> Any:
        sampler = getattr(iterator, "epoch_batch_sampler", None)  # none before the first epoch
        if sampler is not None:
            sampler.shuffle = shuffle
        return make(epoch, shuffle, **options)

    iterator._get_iterator_for_epoch = made
