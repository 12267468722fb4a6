"""Label-smoothed cross-entropy plus weighted auxiliary losses of routing and halting."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics as fairseq_metrics
from fairseq.tasks import FairseqTask
from torch import Tensor

from sut_fairseq import losses, metrics
from sut_fairseq._allocator import keep_freed_memory
from sut_fairseq._excepthook import show_input_errors_as_sentences


@dataclass
class CrossEntropyWithAuxiliaryConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """One weight for each auxiliary loss; 0 leaves it out of the objective, not out of the log."""

    mutual_information_weight: float = field(
        default=0.0,
        metadata={
            "help": "weight of the negative mutual information (the authors' 0.1 was not scaled by "
            "the sample size and acted as about 1e-5)"
        },
    )
    load_balance_weight: float = field(
        default=0.0, metadata={"help": "weight of the Switch load-balancing loss"}
    )
    load_variation_weight: float = field(
        default=0.0,
        metadata={"help": "weight of the squared coefficient of variation of expert load"},
    )
    router_z_weight: float = field(default=0.0, metadata={"help": "weight of the router z-loss"})
    expected_depth_weight: float = field(
        default=0.0, metadata={"help": "weight of the expected depth of tokens (L_ACT)"}
    )
    remainder_weight: float = field(
        default=0.0,
        metadata={"help": "weight of the mean remainder of ACT (0.03 worked best for its authors)"},
    )


# The output each loss reads and the function of that output's statistics.
_TERMS: dict[str, tuple[str, Callable[[Any], Tensor]]] = {
    "mutual_information": ("routing", losses.mutual_information),
    "load_balance": ("routing", losses.load_balance),
    "load_variation": ("routing", losses.squared_coefficient_of_variation),
    "router_z": ("routing", losses.router_z),
    "expected_depth": ("halting", losses.expected_depth),
    "remainder": ("halting", losses.remainder),
}


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
        mutual_information_weight: float = 0.0,
        load_balance_weight: float = 0.0,
        load_variation_weight: float = 0.0,
        router_z_weight: float = 0.0,
        expected_depth_weight: float = 0.0,
        remainder_weight: float = 0.0,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.weights = {
            "mutual_information": mutual_information_weight,
            "load_balance": load_balance_weight,
            "load_variation": load_variation_weight,
            "router_z": router_z_weight,
            "expected_depth": expected_depth_weight,
            "remainder": remainder_weight,
        }

    @classmethod
    def build_criterion(cls, cfg: Any, task: FairseqTask) -> "CrossEntropyWithAuxiliaryCriterion":
        """Build the criterion that the options describe."""
        show_input_errors_as_sentences()
        criterion: CrossEntropyWithAuxiliaryCriterion = super().build_criterion(cfg, task)
        return criterion

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
        for name, (output, loss) in _TERMS.items():
            parts = [loss(statistics) for statistics in extra.get(output, {}).values()]
            if parts:
                terms[name] = torch.stack(parts).sum()
        return terms

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the objective, its terms by themselves, depths, expert load and exact match."""
        super().reduce_metrics(logging_outputs)
        sample_size = sum(log["sample_size"] for log in logging_outputs)
        for name in _TERMS:
            key = f"{name}_loss"
            if any(key in log for log in logging_outputs):
                total = sum(log[key] for log in logging_outputs if key in log)
                fairseq_metrics.log_scalar(key, total / sample_size, sample_size, round=4)
        metrics.log_halting(logging_outputs)
        metrics.log_expert_load(logging_outputs)
        metrics.log_exact_match(logging_outputs)
