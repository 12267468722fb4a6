"""Peak memory of a training step: more steps, recomputed activations, mixture attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sut_fairseq.analysis.benchmark import attention
from sut_fairseq.analysis.benchmark.peak import peak_bytes
from sut_fairseq.analysis.benchmark.peers import own_criterion, own_model
from sut_fairseq.analysis.benchmark.report import Report, size
from sut_fairseq.analysis.benchmark.steps import Step, sample_of, training_step
from sut_fairseq.analysis.benchmark.timing import Conditions, measure
from sut_fairseq.analysis.untrained import random_batch
from sut_fairseq.errors import check

REPETITIONS = 3


@dataclass(frozen=True)
class Sizes:
    """Sizes of the batches; the vocabulary is small, so that the depth loop is what counts."""

    arch: str = size("sut_base", "architecture")
    sentences: int = size(16, "sentence pairs")
    src_len: int = size(32, "tokens of each source sentence")
    tgt_len: int = size(32, "tokens of each target sentence")
    vocab_size: int = size(1000, "size of the dictionary")
    steps: tuple[int, ...] = size((6, 12), "numbers of steps; the first is the baseline")
    attention_length: int = size(128, "sentence length for attention by itself")
    attention_tokens: int = size(4096, "tokens for attention by itself")


def run(sizes: Sizes, conditions: Conditions) -> Report:
    """Measure peak memory, and also times.

    Raises:
        InputError: for an architecture of another package, or if a size is not allowed.
    """
    distinct = len(set(sizes.steps)) == len(sizes.steps) >= 2
    check(distinct, "--steps", "at least two different numbers", list(sizes.steps))
    attention.check_length(
        sizes.attention_length,
        sizes.attention_tokens,
        "--attention-length",
        "--attention-tokens",
    )
    report = Report("memory", sizes, conditions)
    torch.manual_seed(conditions.seed)
    _measure(report, _training_steps(sizes, conditions))
    first = sizes.steps[0]
    for ending, text in (("", ""), ("_checkpointed", ", activations recomputed in both")):
        for steps in sizes.steps[1:]:
            report.add_ratio(
                f"memory_{steps}_to_{first}_steps{ending}",
                _peak(report, f"steps_{steps}{ending}") / _peak(report, f"steps_{first}{ending}"),
                f"peak memory of {steps} / {first} steps{text}",
            )
    for steps in sizes.steps:
        report.add_ratio(
            f"memory_checkpointed_{steps}",
            _peak(report, f"steps_{steps}_checkpointed") / _peak(report, f"steps_{steps}"),
            f"peak memory of {steps} steps with / without recomputed activations",
        )
    layer = attention.Sizes(tokens=sizes.attention_tokens)
    kinds = ("mixture", "dense")
    _measure(report, attention.steps(layer, sizes.attention_length, conditions, kinds))
    report.add_ratio(
        "memory_mixture_to_dense",
        _peak(report, "mixture") / _peak(report, "dense"),
        "peak memory of mixture / dense attention by itself, with as many query heads",
    )
    return report


def _training_steps(sizes: Sizes, conditions: Conditions) -> dict[str, Step]:
    model, task = own_model(sizes.arch, sizes.vocab_size)
    batch = random_batch(
        model, task, src_len=sizes.src_len, tgt_len=sizes.tgt_len, sentences=sizes.sentences
    )
    model, sample = model.to(conditions.device), sample_of(batch, conditions.device)
    return {
        f"steps_{steps}{'_checkpointed' if checkpoint else ''}": training_step(
            model,
            own_criterion(task),
            sample,
            conditions,
            num_steps=steps,
            checkpoint_activations=checkpoint,
        )
        for steps in sizes.steps
        for checkpoint in (False, True)
    }


def _measure(report: Report, variants: dict[str, Step]) -> None:
    peaks = {name: peak_bytes(step, report.conditions) for name, step in variants.items()}
    report.add_times(measure(variants, report.conditions, description="memory"), peaks=peaks)


def _peak(report: Report, variant: str) -> int:
    return int(report.variant(variant)["peak_bytes"])
