"""Label-smoothed cross-entropy plus weighted auxiliary losses of routing and halting."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Self

import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics as fairseq_metrics
from fairseq.tasks import FairseqTask
from torch import Tensor

from sut_fairseq import metrics
from sut_fairseq._added_options import add_options
from sut_fairseq._allocator import keep_freed_memory
from sut_fairseq._process import check_target_padding, prepare_process
from sut_fairseq._tensorboard import warn_of_tensorboard_once
from sut_fairseq._workers import IGNORED
from sut_fairseq.criterions.cuda_graphs import Record
from sut_fairseq.criterions.over_workers import counted, several_workers, sum_over_workers
from sut_fairseq.criterions.recording import RecordedSteps
from sut_fairseq.errors import check, check_choice
from sut_fairseq.losses import AUXILIARY_LOSSES, LISTENERS, AuxiliaryLoss

logger = logging.getLogger(__name__)


@dataclass
class _Options(LabelSmoothedCrossEntropyCriterionConfig):
    """How the objective is computed."""

    auxiliary_over_workers: bool = field(
        default=False,
        metadata={
            "help": "compute the auxiliary losses of several workers from the sums of all of them, "
            "as one process would from their batches together (default: average each worker's own)"
        },
    )
    autocast: ChoiceEnum(["none", "bfloat16"]) = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "train in mixed precision: parameters in float32, and in bfloat16 whatever "
            "torch's autocast computes in it; without loss scaling, and without --amp, which is "
            "for float16"
        },
    )
    cuda_graphs: int = field(
        default=0,
        metadata={
            "help": "record training steps as CUDA graphs, one for each shape of a batch, and pad "
            "sentences to a multiple of N words so that there are few (0: do not); faster where a "
            "GPU computes operations faster than they are asked for, as it does in small models"
        },
    )


def _weight(loss: AuxiliaryLoss) -> tuple[str, type, Any]:
    """Name, type and description of the option for a loss's weight."""
    about = {"help": f"weight of the {loss.help}"}
    return f"{loss.name}_weight", float, field(default=0.0, metadata=about)


def options_with_weights() -> Any:
    """Make the class of all options: those above and one weight for each auxiliary loss.

    A weight of 0, the default, leaves a loss out of the objective, but not out of the log.
    """
    weights = [_weight(loss) for loss in AUXILIARY_LOSSES]
    options = make_dataclass("CrossEntropyWithAuxiliaryConfig", weights, bases=(_Options,))
    options.__module__ = __name__
    options.__doc__ = "Weights of the auxiliary losses."
    return options


CrossEntropyWithAuxiliaryConfig = options_with_weights()


def _add_weight(loss: AuxiliaryLoss) -> None:
    """Give the criterions the weight of a plugin's loss."""
    new = make_dataclass("Weight", [_weight(loss)], bases=(FairseqDataclass,))
    owner = CrossEntropyWithAuxiliaryConfig
    add_options("criterion", CRITERION_DATACLASS_REGISTRY, owner, new)


LISTENERS.append(_add_weight)


@register_criterion("cross_entropy_with_auxiliary", dataclass=CrossEntropyWithAuxiliaryConfig)
class CrossEntropyWithAuxiliaryCriterion(LabelSmoothedCrossEntropyCriterion):
    """loss = cross-entropy + sample_size * sum over terms of weight * term.

    A term is summed over the modules (routing) or stacks (halting) that report statistics. The
    cross-entropy is a sum over tokens and the terms are means, hence the factor: the balance
    between them does not depend on the batch size. A model that reports no statistics trains as
    with `label_smoothed_cross_entropy`. Validation also logs the exact match of greedy search,
    which is given the prefix that `--ignore-prefix-size` leaves out of the loss. As in fairseq, the
    sample size counts the tokens of that prefix.

    With several workers, each computes the terms of its own batch, and gradients are those of the
    mean over workers, weighted by sample size; with `over_workers`, each computes the terms of all
    batches together in training.
    """

    # Read by `_workers`, which marks batches that do not count: every sum here leaves them out.
    knows_ignored_batches = True

    # Whether sentences of nothing but padding leave the loss unchanged.
    pads_sentences = True

    def __init__(
        self,
        task: FairseqTask,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        *,
        weights: Mapping[str, float] | None = None,
        over_workers: bool = False,
        autocast: str = "none",
        cuda_graphs: int = 0,
        record: Record | None = None,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        given = weights or {}
        self.weights = {loss.name: given.get(loss.name, 0.0) for loss in AUXILIARY_LOSSES}
        for name in given:
            check_choice("weights", name, self.weights)
        for name, weight in self.weights.items():
            check(math.isfinite(weight), f"{name}_weight", "a finite number", weight)
        check(
            0 <= label_smoothing < 1,
            "label_smoothing",
            "at least 0 and less than 1",
            label_smoothing,
        )
        self._warned = False
        self.over_workers = over_workers
        self.autocast = None if autocast == "none" else torch.bfloat16
        self._recorded: RecordedSteps | None = None
        check(cuda_graphs >= 0, "--cuda-graphs", "at least 0", cuda_graphs)
        if cuda_graphs:
            requirement = "0 with --report-accuracy, which waits for the GPU in each step"
            check(not report_accuracy, "--cuda-graphs", requirement, cuda_graphs)
            self._recorded = RecordedSteps(
                self.compute,
                padding=self.padding_idx,
                multiple=cuda_graphs,
                pads_sentences=self.pads_sentences,
                autocast=self.autocast,
                record=record,
            )

    @classmethod
    def build_criterion(cls, cfg: Any, task: FairseqTask) -> Self:
        """Build the criterion with the weights that the options give.

        Raises:
            InputError: if the task pads targets at their start.
        """
        prepare_process()
        check_target_padding(task)
        warn_of_tensorboard_once()
        return cls(
            task,
            cfg.sentence_avg,
            cfg.label_smoothing,
            cfg.ignore_prefix_size,
            cfg.report_accuracy,
            weights={loss.name: getattr(cfg, f"{loss.name}_weight") for loss in AUXILIARY_LOSSES},
            over_workers=cfg.auxiliary_over_workers,
            autocast=str(cfg.autocast),
            cuda_graphs=cfg.cuda_graphs,
        )

    def forward(
        self, model: torch.nn.Module, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch; with `--cuda-graphs`, training steps are recorded.

        Returns:
            the loss to minimise, a sum; its denominator; and sums to log.
        """
        if self._recorded is None or not self.training or not reduce:
            return self.compute(model, sample, reduce)
        return self._recorded(model, sample)

    def compute(
        self, model: torch.nn.Module, sample: Mapping[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute what `forward` returns, without a recording."""
        net_output = self.run(model, sample)
        loss, nll_loss = self.compute_loss(model, net_output, sample, reduce=reduce)
        sentences = sample.get("nsentences", sample["target"].size(0))
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "nll_loss": nll_loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
        }
        # A language model has no target sentence to match.
        if not self.training and "prev_output_tokens" in sample["net_input"]:
            logging_output |= metrics.exact_match_sums(
                metrics.word_scores(model, net_output),
                sample["target"],
                self.task.target_dictionary,
                prefix_size=self.ignore_prefix_size,
            )
        if self.report_accuracy:
            correct, total = self.compute_accuracy(model, net_output, sample)
            logging_output |= {"n_correct": correct.item(), "total": total.item()}
        extra = net_output[1] if isinstance(net_output[1], Mapping) else {}
        return self.objective(loss, extra, sample, logging_output)

    def run(self, model: torch.nn.Module, sample: Mapping[str, Any]) -> Any:
        """The model's output; in training, in the precision of `--autocast`."""
        device = sample["target"].device.type
        if self.training and device == "cpu":
            keep_freed_memory()
        if not self.training or self.autocast is None:
            return model(**sample["net_input"])
        with torch.autocast(device, dtype=self.autocast):
            return model(**sample["net_input"])

    def objective(
        self, loss: Tensor, extra: Mapping[str, Any], sample: Mapping[str, Any], log: dict[str, Any]
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """What `forward` returns: the loss, a sum, plus the sample size times the weighted terms.

        Args:
            loss: of the batch, a scalar.
            extra: a model's extra output, with or without "routing" and "halting" statistics.
            sample: the batch.
            log: sums to log, among them "sample_size", the denominator of the loss.
        """
        sample_size: int = log["sample_size"]
        log |= metrics.halting_sums(extra.get("halting", {}))
        log |= metrics.routing_sums(extra.get("routing", {}))
        scale: int | Tensor = sample_size
        if self.over_workers and self.training and several_workers():
            ignored = sample.get(IGNORED, False)
            extra, scale = sum_over_workers(extra, sample_size, ignored=ignored)
        log["loss"] = loss.detach()
        terms = self.auxiliary_terms(extra)
        self._warn_of_missing(terms, extra)
        always = {one.name for one in AUXILIARY_LOSSES if one.always}
        for name, term in terms.items():
            if self.weights[name] or name in always:
                loss = loss + scale * self.weights[name] * term
            # Summed over workers, the logged parts give the total, however it was computed.
            log[f"{name}_loss"] = sample_size * term.detach()
            log["loss"] = log["loss"] + self.weights[name] * log[f"{name}_loss"]
        return counted(sample, loss, sample_size, log)

    def _warn_of_missing(self, terms: Mapping[str, Tensor], extra: Mapping[str, Any]) -> None:
        """Warn once of weights without effect, because the model lacks what they apply to."""
        if self._warned:
            return
        self._warned = True
        for loss in AUXILIARY_LOSSES:
            weight = self.weights[loss.name]
            if weight and loss.name not in terms:
                lacks = {"routing": "routers", "halting": "halting"}[loss.reads]
                lacks += " that it reads" if extra.get(loss.reads) else ""
                flag = f"--{loss.name.replace('_', '-')}-weight {weight}"
                logger.warning("%s has no effect: this model has no %s", flag, lacks)

    @staticmethod
    def auxiliary_terms(extra: Mapping[str, Any]) -> dict[str, Tensor]:
        """Each auxiliary loss that the model reports statistics for, unweighted, scalar."""
        terms = {}
        for loss in AUXILIARY_LOSSES:
            found = [loss.function(sums) for sums in extra.get(loss.reads, {}).values()]
            parts = [one for one in found if one is not None]
            if parts:
                terms[loss.name] = torch.stack(parts).sum()
        return terms

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the objective, each of its terms, depths, expert load and exact match."""
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
