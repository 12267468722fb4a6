"""The batches of a training that goes on are those that it would have had without a break.

fairseq groups sentences into batches once, at random, and shuffles these groups anew for every
epoch. The random order is that of the epoch in which the process started, so that a process that
starts later groups other sentences. Here the place in the data that a checkpoint holds says which
epoch the groups were made for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MADE_FOR = "batches_made_for_epoch"  # beside fairseq's own entries of `train_iterator`


def keep_batches(trainer: Any, iterator: Any, state: Mapping[str, Any] | None) -> Any:
    """The iterator to train with.

    Data sets that fairseq groups anew for every epoch need nothing and get the iterator back.

    Args:
        trainer: fairseq's.
        iterator: what it would train with.
        state: the place in the data that was restored; None where a training begins. Without the
            entry, which fairseq does not write, the training is taken for one without a break.
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
    fairseqs = iterator.state_dict
    iterator.state_dict = lambda: {**fairseqs(), MADE_FOR: epoch}
    return iterator
