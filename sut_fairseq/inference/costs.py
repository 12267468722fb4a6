"""What it costs to run a model on a line and its translation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sut_fairseq.analysis.complexity import Complexity, count_pair
from sut_fairseq.inference.results import Translation
from sut_fairseq.tasks.labels import LabelTask


class Costs:
    """Counts equal lines with equal translations once; for one model with one threshold.

    Args:
        model: fairseq's model; its mode is kept.
        task: fairseq's task.
        device: where the model is.
    """

    def __init__(self, model: nn.Module, task: Any, device: torch.device) -> None:
        self._model, self._task, self._device = model, task, device
        self._counted: dict[tuple[tuple[int, ...], ...], Complexity | None] = {}

    def added_to(self, result: Translation) -> Translation:
        """A translation with depth and MACs, from running the model once more on both its texts."""
        words, read = result.source_tokens, result.target_tokens
        if words is None or read is None:
            return result
        if isinstance(self._task, LabelTask):
            read = read[:1]
        pair = tuple(words.tolist()), tuple(read.tolist())
        if pair not in self._counted:
            self._counted[pair] = self._count(words, read)
        cost = self._counted[pair]
        if cost is None:
            return result
        depth = {stack: float(halting.depth) for stack, halting in cost.halting.items()}
        return replace(result, depth=depth, macs=cost.macs_full)

    def _count(self, words: Tensor, read: Tensor) -> Complexity | None:
        # The task may prepend a token to the words.
        dataset = self._task.build_dataset_for_inference([words], [len(words)])
        (source,) = dataset.collater([dataset[0]])["net_input"]["src_tokens"]
        eos = self._task.target_dictionary.eos()
        return count_pair(self._model, source.to(self._device), read.to(self._device), eos)
