"""Base of the models for sequence classification."""

from __future__ import annotations

from typing import Any

from fairseq.tasks import FairseqTask
from torch import Tensor

from sut_fairseq.errors import InputError
from sut_fairseq.models._pretrained import Pretrained


class Classifier(Pretrained):
    """A model whose `forward` returns `(scores, extra)`, scores `(batch, num_labels)`."""

    def __init__(self, max_positions: tuple[int, int]) -> None:
        super().__init__()
        self._max_positions = max_positions

    def get_normalized_probs(
        self,
        net_output: tuple[Tensor, Any],
        log_probs: bool,
        sample: dict[str, Any] | None = None,
    ) -> Tensor:
        """(Log-)probability of each label, `(batch, num_labels)`, float32."""
        scores = net_output[0].float()
        return scores.log_softmax(dim=-1) if log_probs else scores.softmax(dim=-1)

    def max_positions(self) -> tuple[int, int]:
        """Greatest number of tokens in a source and a target."""
        return self._max_positions


def num_labels(task: FairseqTask) -> int:
    """Number of labels that a classifier scores.

    Raises:
        InputError: for a task whose models do not score labels.
    """
    number: int | None = getattr(task, "num_labels", None)
    if number is None:
        raise InputError(
            "a classifier gives one score for each label: give --task sequence_classification "
            "(and, in training, --criterion classification)."
        )
    return number
