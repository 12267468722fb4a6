"""Translation of pairs whose gold attention is known: how much of it a model reproduces."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq.data import BaseWrapperDataset, LanguagePairDataset
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.utils import split_paths
from torch import Tensor, nn

from sut_fairseq import metrics
from sut_fairseq._process import check_target_padding, prepare_process
from sut_fairseq.errors import InputError
from sut_fairseq.metrics import GreedyOutcome
from sut_fairseq.modules.trained_words import keep_words
from sut_fairseq.tasks.columns import column_names, read_column
from sut_fairseq.tasks.searching import greedy_search

_MOST_DIGITS = 9


@dataclass
class GoldAttentionConfig(TranslationConfig):
    """Options of `translation`, and the column of gold attention."""

    attention_column: str = field(
        default="attention",
        metadata={
            "help": "column of gold attention (a file text/<split>.<column> in the data folder): "
            "for each word of the target and for its end the position of a source word, from 0"
        },
    )


@register_task("translation_with_gold_attention", dataclass=GoldAttentionConfig)
class GoldAttentionTask(TranslationTask):
    """Translation, with the measures of Dubois et al. (2020), 6.2, in validation.

    They are computed by greedy search (`metrics.GreedyOutcome`): `exact_match` (logged by the
    criterion), `before_eos` and, for models that report attention, `attention_loss`.
    """

    def __init__(self, cfg: GoldAttentionConfig, src_dict: Any, tgt_dict: Any) -> None:
        prepare_process()
        super().__init__(cfg, src_dict, tgt_dict)
        check_target_padding(self)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model, and have it report its attention if it can.

        Its checkpoints keep the words of both dictionaries, also for fairseq's own models.
        """
        model = super().build_model(cfg, from_checkpoint)
        keep_words(model, self.src_dict.symbols, self.tgt_dict.symbols)
        if hasattr(model.decoder, "reports_attention"):
            model.decoder.reports_attention = True
        return model

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Load a split and its gold attention, which the training split may lack.

        Raises:
            InputError: if the column is missing, or for gold attention that does not fit its pair.
        """
        super().load_dataset(split, epoch, combine, **kwargs)
        pairs = self.datasets[split]
        folders, name = split_paths(self.cfg.data), self.cfg.attention_column
        # As in fairseq: with several folders, each epoch trains on the next one.
        folder = folders[(epoch - 1) % len(folders) if split == self.cfg.train_subset else 0]
        if split != self.cfg.train_subset or name in column_names(folder, split):
            if self.cfg.truncate_source:
                raise InputError(
                    f"--truncate-source cuts source words that the gold attention of {split} may "
                    "point at: leave it out (--max-source-positions leaves out long sources whole)."
                )
            lines = read_column(folder, split, name, len(pairs))
            gold = read_gold(lines, pairs, Path(folder) / "text" / f"{split}.{name}")
            self.datasets[split] = WithGold(pairs, gold)

    def valid_step(
        self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of the criterion, and sums of the measures."""
        loss, sample_size, log = super().valid_step(sample, model, criterion)
        return loss, sample_size, log | metrics.greedy_sums(self.search(model, sample))

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: nn.Module) -> None:
        """Log what the criterion logs, and the measures."""
        super().reduce_metrics(logging_outputs, criterion)
        metrics.log_greedy(logging_outputs)

    @torch.no_grad()
    def search(
        self, model: Any, sample: dict[str, Any], max_len: int | None = None
    ) -> GreedyOutcome:
        """Translate a batch greedily and compare words and attention with the references.

        Args:
            model: in evaluation mode.
            sample: a batch; without gold attention there is no attention loss.
            max_len: see `greedy_search`; None suffices to compare with the references.
        """
        target = sample["target"]
        tokens, weights = greedy_search(model, sample, self.tgt_dict, max_len)
        return metrics.compare_greedy(
            tokens,
            target,
            self.tgt_dict,
            weights=weights,
            source_padding=sample["net_input"]["src_tokens"] == self.src_dict.pad(),
            gold=sample.get("gold_attention"),
        )


def read_gold(lines: Sequence[str], pairs: LanguagePairDataset, path: Path) -> list[Tensor]:
    """Positions of gold attention, `(target length with its end,)` for each pair.

    Args:
        lines: the column.
        pairs: sources and targets with their ends.
        path: of the column, for messages.

    Raises:
        InputError: naming the first line that does not fit its pair.
    """
    gold = []
    for number, line in enumerate(lines):
        source, target = int(pairs.src_sizes[number]) - 1, int(pairs.tgt_sizes[number])
        if source == 0:
            raise InputError(
                f"`{path}`, line {number + 1}: this source has no words, so its pair can have no "
                f"gold attention: leave the pair out."
            )
        # Python refuses to parse numbers of thousands of digits.
        numbers = [
            int(word) if word.isdecimal() and len(word) <= _MOST_DIGITS else source
            for word in line.split()
        ]
        if len(numbers) != target or max(numbers) >= source:
            raise InputError(
                f"`{path}`, line {number + 1}: the gold attention of this pair must be {target} "
                f"whole numbers, one for each target word and one for the end, from 0 to "
                f"{source - 1}, but is `{line[:60]}`."
            )
        gold.append(torch.tensor(numbers))
    return gold


class WithGold(BaseWrapperDataset):
    """Adds the positions of gold attention to batches, `(batch, target length)`, 0 in padding."""

    def __init__(self, dataset: LanguagePairDataset, gold: list[Tensor]) -> None:
        super().__init__(dataset)
        self.gold = gold
        self.src_sizes, self.tgt_sizes = dataset.src_sizes, dataset.tgt_sizes

    def collater(self, samples: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        batch: dict[str, Any] = self.dataset.collater(samples, **kwargs)
        if batch:
            gold = [self.gold[number] for number in batch["id"].tolist()]
            stacked = nn.utils.rnn.pad_sequence(gold, batch_first=True)
            # Targets may be padded to a multiple (`--required-seq-len-multiple`).
            missing = batch["target"].size(1) - stacked.size(1)
            batch["gold_attention"] = nn.functional.pad(stacked, (0, missing))
        return batch
