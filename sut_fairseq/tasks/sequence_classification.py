"""Classification with a model that reads the source and scores the labels."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

import copy
from typing import Any

import torch
from fairseq.data import FairseqDataset, LanguagePairDataset, PrependTokenDataset
from fairseq.tasks import register_task
from torch import Tensor

from sut_fairseq.errors import InputError, check
from sut_fairseq.tasks.labels import LabelTask, LabelTaskConfig


@register_task("sequence_classification", dataclass=LabelTaskConfig)
class SequenceClassificationTask(LabelTask):
    """Classification with a model that reads the source and scores the labels.

    It reads the same folders as `classification_as_translation`. Each source has a begin and an end
    token, which a model may leave out. The model returns `(scores, extra)`, scores
    `(batch, num_labels)` in the order of `labels`, and the criterion is `classification`. fairseq
    selects checkpoints, and stops early, by the first of the sets in `--valid-subset`, so
    `--valid-subset valid_deep,valid` selects by `valid_deep`.
    """

    cfg: LabelTaskConfig
    BOUNDARY_TOKENS = 2  # of each source: begin and end

    @property
    def num_labels(self) -> int:
        """Number of labels that a model scores."""
        return len(self.labels)

    def label_indices(self, sample: dict[str, Any]) -> Tensor:
        """Index of each sentence's label, `(batch,)`, from 0."""
        words = sample["target"][:, 0].contiguous()
        if self.labels.device != words.device:
            self.labels = self.labels.to(words.device)  # kept: a copy in each step would block
        return torch.searchsorted(self.labels, words)

    def scores(self, model: Any, sample: dict[str, Any]) -> Tensor:
        """The model's own scores, `(batch, num_labels)`."""
        return model(**sample["net_input"])[0]

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Load a split as `LabelTask` does; `--truncate-source` leaves room for the begin token.

        Raises:
            InputError: as there, or if truncation could leave a source without words.
        """
        whole = self.cfg
        if whole.truncate_source:
            most = whole.max_source_positions
            needed = f"more than {self.BOUNDARY_TOKENS}, with --truncate-source"
            check(most > self.BOUNDARY_TOKENS, "max_source_positions", needed, most)
            # fairseq leaves room for the end token only.
            self.cfg = copy.copy(whole)
            self.cfg.max_source_positions = most - 1
        try:
            super().load_dataset(split, epoch, combine, **kwargs)
        finally:
            self.cfg = whole

    def prepare(self, pairs: LanguagePairDataset) -> FairseqDataset:
        """Put the begin token before each source; the data have the end token already."""
        source = PrependTokenDataset(pairs.src, self.src_dict.bos())
        return LanguagePairDataset(
            source,
            source.sizes,
            pairs.src_dict,
            pairs.tgt,
            pairs.tgt_sizes,
            pairs.tgt_dict,
            # Geometric attention gathers less where no padding comes first; the results are equal.
            left_pad_source=False,
            left_pad_target=pairs.left_pad_target,
            shuffle=pairs.shuffle,
            pad_to_multiple=pairs.pad_to_multiple,
        )

    def build_dataset_for_inference(
        self, src_tokens: list[Tensor], src_lengths: list[int], constraints: Any = None
    ) -> FairseqDataset:
        """Sources for fairseq-interactive."""
        begin = torch.tensor([self.src_dict.bos()])
        return super().build_dataset_for_inference(
            [torch.cat([begin, tokens]) for tokens in src_tokens],
            [length + 1 for length in src_lengths],
            constraints,
        )

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the criterion.

        Raises:
            InputError: for any criterion but `classification`.
        """
        name = getattr(cfg, "_name", None)
        if name != "classification":
            raise InputError(
                f"--task sequence_classification needs --criterion classification, not {name}."
            )
        return super().build_criterion(cfg, from_checkpoint)
