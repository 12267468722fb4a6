"""A training set in which sources of all lengths are equally frequent."""

from __future__ import annotations

from typing import Any

import numpy
from fairseq.data import FairseqDataset, LanguagePairDataset
from fairseq.data.data_utils import filter_paired_dataset_indices_by_size


class BalancedLengths(FairseqDataset):
    """Repeats sentence pairs so that each source length has as many as the most frequent one.

    If the numbers do not divide evenly, the first pairs are repeated once more. The order within a
    length is random in each epoch, as in `LanguagePairDataset`.
    """

    def __init__(self, dataset: LanguagePairDataset) -> None:
        self.dataset = dataset
        lengths = dataset.num_tokens_vec(numpy.arange(len(dataset)))
        groups = [numpy.flatnonzero(lengths == length) for length in numpy.unique(lengths)]
        most = max(map(len, groups), default=0)
        repeated = [numpy.resize(group, most) for group in groups]
        # By length: batches are cut from this order, and few of them mix lengths.
        self._indices = numpy.concatenate(repeated) if repeated else numpy.arange(0)
        self._num_groups = len(groups)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self._indices[index]]

    def __len__(self) -> int:
        return len(self._indices)

    def collater(self, samples: Any) -> Any:
        return self.dataset.collater(samples)

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """No: each epoch has its own order."""
        return False

    @property
    def src_sizes(self) -> Any:
        return self.dataset.src_sizes[self._indices]

    @property
    def tgt_sizes(self) -> Any:
        return self.dataset.tgt_sizes[self._indices]

    @property
    def sizes(self) -> Any:
        return self.dataset.sizes[self._indices]

    def num_tokens(self, index: int) -> int:
        return self.dataset.num_tokens(self._indices[index])

    def num_tokens_vec(self, indices: Any) -> Any:
        return self.dataset.num_tokens_vec(self._indices[indices])

    def size(self, index: int) -> Any:
        return self.dataset.size(self._indices[index])

    def ordered_indices(self) -> Any:
        """By length, in random order within a length; fairseq has seeded numpy for the epoch."""
        by_length = numpy.arange(len(self)).reshape(max(self._num_groups, 1), -1)
        random = numpy.random.default_rng(numpy.random.randint(2**31))
        return random.permuted(by_length, axis=1).ravel()

    def filter_indices_by_size(self, indices: Any, max_sizes: Any) -> Any:
        """The indices of pairs that are not too long, and those that are left out."""
        return filter_paired_dataset_indices_by_size(*self.sizes.T, indices, max_sizes)
