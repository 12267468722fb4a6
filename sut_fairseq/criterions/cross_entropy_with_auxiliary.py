"""Label-smoothed cross-entropy plus weighted auxiliary losses of routing and halting."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from collections.abc import Mapping
from dataclasses import field, make_dataclass
from typing import Any, Self

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics as fairseq_metrics
from fairseq.tasks import FairseqTask
from torch import Tensor

from sut_fairseq import metrics
from sut_fairseq._allocator import keep_freed_memory
from sut_fairseq._excepthook import show_input_errors_as_sentences
from sut_fairseq.losses import AUXILIARY_LOSSES


def weight_options() -> Any:
    """Make the class of options: one weight for each auxiliary loss.

    0, the default, leaves a loss out of the objective, not out of the log.
    """
    weights = [
        (
            f"{loss.name}_weight",
            float,
            field(default=0.0, metadata={"help": f"weight of the {loss.help}"}),
        )
        for loss in AUXILIARY_LOSSES
    ]
    base = LabelSmoothedCrossEntropyCriterionConfig
    options = make_dataclass("CrossEntropyWithAuxiliaryConfig", weights, bases=(base,))
    options.__module__ = __name__
    return options


CrossEntropyWithAuxiliaryConfig = weight_options()


@register_criterion("cross_entropy_with_auxiliary", dataclass=CrossEntropyWithAuxiliaryConfig)
class CrossEntropyWithAuxiliaryCriterion(LabelSmoothedCrossEntropyCriterion):
    """loss = cross-entropy + sample_size * sum over terms of weight * term.

    A term is summed over the modules (routing) or stacks (halting) that report statistics. The
    cross-entropy is a sum over tokens and the terms are means, hence the factor: the balance
    between them does not depend on the batch size. A model that reports no statistics trains as
    with `label_smoothed_cross_entropy`. Validation also logs the exact match of greedy search.
    """

    def __init__(
        self,
        task: FairseqTask,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        *,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        given = weights or {}
        self.weights = {loss.name: given.get(loss.name, 0.0) for loss in AUXILIARY_LOSSES}

    @classmethod
    def build_criterion(cls, cfg: Any, task: FairseqTask) -> Self:
        """Build the criterion with the weights that the options give."""
        show_input_errors_as_sentences()
        return cls(
            task,
            cfg.sentence_avg,
            cfg.label_smoothing,
            cfg.ignore_prefix_size,
            cfg.report_accuracy,
            weights={loss.name: getattr(cfg, f"{loss.name}_weight") for loss in AUXILIARY_LOSSES},
        )

    def forward(
        self, model: torch.nn.Module, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch.

        Returns:
            the loss to minimise, a sum; its denominator; and sums to log.
        """
        self.prepare_training(sample)
        net_output = model(**sample["net_input"])
        loss, nll_loss = self.compute_loss(model, net_output, sample, reduce=reduce)
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "nll_loss": nll_loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": sample_size,
        }
        extra = net_output[1] if isinstance(net_output[1], Mapping) else {}
        loss = self.add_auxiliary_terms(loss, extra, sample_size, logging_output)
        if not self.training:
            logging_output |= metrics.exact_match_sums(
                net_output[0], sample["target"], self.task.target_dictionary
            )
        if self.report_accuracy:
            correct, total = self.compute_accuracy(model, net_output, sample)
            logging_output |= {"n_correct": correct.item(), "total": total.item()}
        return loss, sample_size, logging_output

    def prepare_training(self, sample: Mapping[str, Any]) -> None:
        """See to the process's memory if this is a training step on a CPU."""
        if self.training and sample["target"].device.type == "cpu":
            keep_freed_memory()

    def add_auxiliary_terms(
        self, loss: Tensor, extra: Mapping[str, Any], sample_size: int, log: dict[str, Any]
    ) -> Tensor:
        """The objective: a loss that is a sum, plus `sample_size` times the weighted terms.

        Args:
            loss: scalar.
            extra: a model's extra output, with "routing" and "halting" statistics or without.
            sample_size: denominator of the loss.
            log: gets the objective, each term by itself, and the statistics' sums.
        """
        for name, term in self.auxiliary_terms(extra).items():
            # Added at weight 0 too: every parameter then has a gradient in every training step,
            # which data-parallel training relies on.
            loss = loss + sample_size * self.weights[name] * term
            log[f"{name}_loss"] = sample_size * term.detach()
        log["loss"] = loss.data
        log |= metrics.halting_sums(extra.get("halting", {}))
        log |= metrics.routing_sums(extra.get("routing", {}))
        return loss

    @staticmethod
    def auxiliary_terms(extra: Mapping[str, Any]) -> dict[str, Tensor]:
        """Each auxiliary loss that the model's extra output allows, unweighted, scalar."""
        terms = {}
        for loss in AUXILIARY_LOSSES:
            parts = [loss.function(sums) for sums in extra.get(loss.reads, {}).values()]
            if parts:
                terms[loss.name] = torch.stack(parts).sum()
        return terms

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the objective, its terms by themselves, depths, expert load and exact match."""
        super().reduce_metrics(logging_outputs)
        sample_size = sum(log["sample_size"] for log in logging_outputs)
        for loss in AUXILIARY_LOSSES:
            key = f"{loss.name}_loss"
            if any(key in log for log in logging_outputs):
                total = sum(log[key] for log in logging_outputs if key in log)
                fairseq_metrics.log_scalar(key, total / sample_size, sample_size, round=4)
        metrics.log_halting(logging_outputs)
        metrics.log_expert_load(logging_outputs)
        metrics.log_exact_match(logging_outputs)
