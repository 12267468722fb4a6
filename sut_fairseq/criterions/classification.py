"""Cross-entropy over the labels of whole sentences, plus the auxiliary losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.tasks import FairseqTask
from torch import Tensor

from sut_fairseq import metrics
from sut_fairseq.criterions.cross_entropy_with_auxiliary import (
    CrossEntropyWithAuxiliaryConfig,
    CrossEntropyWithAuxiliaryCriterion,
)
from sut_fairseq.errors import InputError


@register_criterion("classification", dataclass=CrossEntropyWithAuxiliaryConfig)
class ClassificationCriterion(CrossEntropyWithAuxiliaryCriterion):
    """loss = cross-entropy + sentences * sum over terms of weight * term.

    Label smoothing as in fairseq: the label has 1 - eps, each other one eps / (num_labels - 1).
    For the task `sequence_classification` and any model that returns `(scores, extra)`, scores
    `(batch, num_labels)`. The sample size is the number of sentences, and so is fairseq's count of
    tokens (`nll_loss` is per sentence, `wps` is sentences per second).
    """

    pads_sentences = False

    @classmethod
    def build_criterion(cls, cfg: Any, task: FairseqTask) -> Self:
        """Build the criterion.

        Raises:
            InputError: for a task without sentence labels, or with `--ignore-prefix-size`.
        """
        criterion = super().build_criterion(cfg, task)
        if not hasattr(task, "label_indices"):
            raise InputError("--criterion classification needs --task sequence_classification.")
        if cfg.ignore_prefix_size:
            raise InputError(
                "--ignore-prefix-size means nothing for --criterion classification, whose targets "
                "are single labels: leave it out."
            )
        return criterion

    def compute(
        self, model: torch.nn.Module, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch.

        Returns:
            the loss to minimise, a sum; the number of sentences; and sums to log, those of
            accuracy included.

        Raises:
            InputError: for a model that does not score labels.
        """
        scores, extra = self.run(model, sample)
        target = self.task.label_indices(sample)
        size = len(target)
        if scores.shape != (size, self.task.num_labels):
            raise InputError(
                "--criterion classification needs a model that gives one score for each label, "
                f"{(size, self.task.num_labels)} here, but got {tuple(scores.shape)}: take an "
                "encoder_classifier, a recurrent_classifier or one of their architectures."
            )
        log_probs = scores.float().log_softmax(dim=1)
        loss = nll_loss = F.nll_loss(log_probs, target, reduction="sum")
        if self.eps > 0 and self.task.num_labels > 1:
            share = self.eps / (self.task.num_labels - 1)
            loss = (1 - self.eps - share) * nll_loss - share * log_probs.sum()
        with torch.no_grad():
            log = {
                "nll_loss": nll_loss.detach(),
                "ntokens": size,
                "nsentences": size,
                "sample_size": size,
                **metrics.accuracy_sums(
                    scores.argmax(dim=1) == target, sample.get("group"), len(self.task.groups)
                ),
            }
        return self.objective(loss, extra, sample, log)
