"""Mean absolute error of real numbers."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics as fairseq_metrics
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import Tensor

from sut_fairseq._process import prepare_process
from sut_fairseq.criterions.over_workers import counted
from sut_fairseq.errors import InputError


@dataclass
class AbsoluteErrorCriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("absolute_error", dataclass=AbsoluteErrorCriterionConfig)
class AbsoluteErrorCriterion(FairseqCriterion):
    """loss = mean of |prediction - target| (L1).

    For any model that returns `(predictions, extra)` with predictions of the target's shape. The
    sample size is the number of targets, and so is fairseq's count of tokens. With
    `--sentence-avg` it is the number of samples: gradients are larger, the logged loss is the same.
    """

    # Read by `_workers`, which marks batches that do not count: every sum here leaves them out.
    knows_ignored_batches = True

    def __init__(self, task: FairseqTask, sentence_avg: bool = False) -> None:
        super().__init__(task)
        self.sentence_avg = sentence_avg

    @classmethod
    def build_criterion(cls, cfg: Any, task: FairseqTask) -> Self:
        """Build the criterion."""
        prepare_process()
        return cls(task, cfg.sentence_avg)

    def forward(
        self, model: torch.nn.Module, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch.

        Returns:
            the loss to minimise, a sum; its denominator; and sums to log.

        Raises:
            InputError: for predictions of another shape.
        """
        predictions, _ = model(**sample["net_input"])
        target = sample["target"]
        if predictions.shape != target.shape:
            raise InputError(
                "--criterion absolute_error needs a model that predicts a number for each target, "
                f"{tuple(target.shape)} here, but got {tuple(predictions.shape)}."
            )
        loss = F.l1_loss(predictions.float(), target.float(), reduction="sum")
        size = len(target) if self.sentence_avg else target.numel()
        log = {
            "loss": loss.data,
            "ntokens": target.numel(),
            "nsentences": len(target),
            "sample_size": size,
        }
        return counted(sample, loss, size, log)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the mean absolute error as `loss`."""
        total = sum(log["loss"] for log in logging_outputs)
        size = sum(log["ntokens"] for log in logging_outputs)
        fairseq_metrics.log_scalar("loss", total / size, size, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """They can: they are sums."""
        return True
