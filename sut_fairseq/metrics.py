"""From sums in logging outputs to fairseq metrics.

Sums go in, ratios of sums come out, so that a logged value does not depend on how the data was
split into batches or over workers. (The auxiliary losses do: the criterion logs the mean over
batches of what it minimises, in which routing is balanced within a batch.) By fairseq's
convention, meters whose names start with an underscore are kept but not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.logging import metrics
from torch import Tensor

from sut_fairseq.statistics import HaltingStatistics, RoutingStatistics

_DEPTH = "halting_"
_OF_HALTING = ("tokens", "expected_depth", "steps_run", "steps_possible")
_LOAD = "assignments_"


def halting_sums(halting: Mapping[str, HaltingStatistics]) -> dict[str, Tensor]:
    """Logging-output entries for the halting statistics of each stack."""
    return {
        f"{_DEPTH}{stack}_{name}": getattr(sums, name).detach()
        for stack, sums in halting.items()
        for name in _OF_HALTING
    }


def routing_sums(routing: Mapping[str, RoutingStatistics]) -> dict[str, Tensor]:
    """Logging-output entries for the expert load of each routed module, `(num_experts,)` each."""
    return {f"{_LOAD}{module}": sums.assignments.detach() for module, sums in routing.items()}


def word_scores(model: Any, output: Any) -> Tensor:
    """Scores of each word, `(batch, length, vocabulary)`, from a model's output in evaluation mode.

    They are logits, or log-probabilities if the model has an adaptive softmax, which returns none.
    """
    if getattr(getattr(model, "decoder", None), "adaptive_softmax", None) is None:
        scores: Tensor = output[0]
    else:
        scores = model.get_normalized_probs(output, log_probs=True)
    return scores


def found_by_greedy_search(
    scores: Tensor, target: Tensor, words: Dictionary, *, prefix_size: int = 0
) -> Tensor:
    """Which references greedy search would find, without running it.

    It finds a reference if and only if, after each prefix of the reference, the next symbol is the
    most probable one. As in fairseq's generator, neither padding nor an empty sentence is ever
    predicted; a reference with an unknown word is never found. A prefix that the search is given
    is not checked, and the sentence may end right after it.

    Args:
        scores: of each symbol after each prefix of the reference, `(batch, length, vocabulary)`;
            logits or log-probabilities.
        target: the references, `(batch, length)`, padded at the end.
        words: the target dictionary.
        prefix_size: number of symbols at the start of each reference that the search is given.

    Returns:
        `(batch,)`, bool.
    """
    # Overwritten, then restored: a copy of all scores would be the largest tensor in validation.
    never = (scores.detach()[..., words.pad()], scores.detach()[:, 0, words.eos()])
    kept = [column.clone() for column in never]
    for column in never:
        column.fill_(-torch.inf)
    right = (scores.argmax(dim=-1) == target) & (target != words.unk())
    for column, values in zip(never, kept):
        column.copy_(values)
    if prefix_size > 0:  # the condition under which fairseq's criterion skips a prefix
        right[:, :prefix_size] = True
    return (right | (target == words.pad())).all(dim=1)


def exact_match_sums(
    scores: Tensor, target: Tensor, words: Dictionary, *, prefix_size: int = 0
) -> dict[str, Tensor]:
    """Logging-output entries for exact match; for the arguments see `found_by_greedy_search`."""
    found = found_by_greedy_search(scores, target, words, prefix_size=prefix_size)
    return {
        "exact_match_right": found.sum(),
        "exact_match_sentences": torch.tensor(target.size(0), device=target.device),
    }


def log_exact_match(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Log `exact_match`, in per cent of all sentences."""
    keys = ("exact_match_right", "exact_match_sentences")
    if any(keys[1] in log for log in logging_outputs):
        for key in keys:
            metrics.log_scalar_sum(f"_{key}", float(_total(logging_outputs, key)))
        _log_ratio("exact_match", *(f"_{key}" for key in keys), scale=100)


class GreedyOutcome(NamedTuple):
    """The result of greedy search on a batch; all are `(batch,)`, except `tokens`.

    Attributes:
        tokens: `(batch, steps)`, padded after the end of each sentence.
        right: bool, exact match.
        before_eos: bool, whether all words before the predicted end are right, however many are
            missing after it (SeqAccBE of Dubois et al., 2020).
        attention_loss: mean over the steps before the end of the squared distance, in source
            words, between the mean attended position and the gold one; None without attention.
    """

    tokens: Tensor
    right: Tensor
    before_eos: Tensor
    attention_loss: Tensor | None


def compare_greedy(
    tokens: Tensor,
    target: Tensor,
    words: Dictionary,
    *,
    weights: Tensor | None,
    source_padding: Tensor,
    gold: Tensor | None,
) -> GreedyOutcome:
    """Compare the output of greedy search with references and gold attention.

    attention loss = 1/|T| * sum over t in T of (sum_s s * a_ts / sum_s a_ts - gold_t)^2, where T
    are the steps before the predicted end or that of the reference, whichever comes first (Dubois
    et al., 2020, 6.2).

    Args:
        tokens: symbols found, `(batch, steps)`, padded after the end of each sentence; sentences
            without an end have at least as many symbols as the longest reference.
        target: the references, `(batch, length)`, padded at the end; one with an unknown word is
            never found.
        words: the target dictionary.
        weights: attention a_ts of each step, `(batch, steps, source length)`, or None.
        source_padding: `(batch, source length)`, True where the source is padding, at its start
            or end; positions s count from the first word.
        gold: gold position of each step, `(batch, length)`, or None if unknown.
    """
    # Columns beyond the longest reference add nothing: there, the end has been missed.
    steps = min(tokens.size(1), target.size(1))
    found = F.pad(tokens[:, :steps], (0, target.size(1) - steps), value=words.pad())
    before = (found == words.eos()).cumsum(dim=1) == 0
    same = (found == target) & (target != words.unk())
    right = (same | (target == words.pad())).all(dim=1)
    before_eos = (same | ~before).all(dim=1)
    if weights is None or gold is None:
        return GreedyOutcome(tokens, right, before_eos, None)
    counted = before & (target != words.eos()) & (target != words.pad())
    positions = (~source_padding).cumsum(dim=1) - 1
    weights = weights[:, :steps].masked_fill(source_padding[:, None], 0.0)
    total = weights.sum(dim=2).clamp(min=torch.finfo(weights.dtype).tiny)
    attended = (weights * positions[:, None]).sum(dim=2) / total
    squared = (attended - gold[:, :steps]) ** 2 * counted[:, :steps]
    # An empty reference has no step.
    loss = squared.sum(dim=1) / counted.sum(dim=1).clamp(min=1)
    return GreedyOutcome(tokens, right, before_eos, loss)


def greedy_sums(outcome: GreedyOutcome) -> dict[str, Tensor]:
    """Logging-output entries for all measures of greedy search except exact match."""
    sums = {
        "before_eos_right": outcome.before_eos.sum(),
        "greedy_sentences": torch.tensor(outcome.before_eos.numel(), device=outcome.right.device),
    }
    if outcome.attention_loss is not None:
        sums["attention_loss_sum"] = outcome.attention_loss.sum()
    return sums


def log_greedy(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Log `before_eos`, in per cent of all sentences, and the mean `attention_loss`."""
    if not any("greedy_sentences" in log for log in logging_outputs):
        return
    sentences = float(_total(logging_outputs, "greedy_sentences"))
    for name, key, scale in (
        ("before_eos", "before_eos_right", 100.0),
        ("attention_loss", "attention_loss_sum", 1.0),
    ):
        if any(key in log for log in logging_outputs):
            mean = scale * float(_total(logging_outputs, key)) / max(sentences, 1)
            metrics.log_scalar(name, mean, sentences, round=3)


def accuracy_sums(right: Tensor, groups: Tensor | None, num_groups: int) -> dict[str, Tensor]:
    """Logging-output entries for the accuracy of a batch, overall and by group.

    Args:
        right: `(batch,)`, bool, True where the prediction is right.
        groups: the group of each sentence, `(batch,)`, or None.
        num_groups: how many groups there are; 0 reports none.
    """
    # The last entry counts all sentences; every worker has the same keys and sizes.
    sums = right.new_zeros(2, num_groups + 1, dtype=torch.long)
    if groups is not None:
        sums[0].index_add_(0, groups, right.long())
        sums[1].index_add_(0, groups, torch.ones_like(groups))
    sums[:, -1] = torch.stack([right.sum(), torch.full_like(sums[0, 0], right.numel())])
    return {"accuracy_right": sums[0], "accuracy_sentences": sums[1]}


def log_accuracy(logging_outputs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Log `accuracy` and, for groups with sentences, `accuracy_<name>`, in per cent."""
    keys = ("accuracy_right", "accuracy_sentences")
    if not any(keys[0] in log for log in logging_outputs):
        return
    right, sentences = (_total(logging_outputs, key).tolist() for key in keys)
    for index, name in enumerate((*(f"accuracy_{name}" for name in names), "accuracy")):
        if sentences[index]:
            metrics.log_scalar(
                name, 100 * right[index] / sentences[index], sentences[index], round=3
            )


def log_halting(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Log for each stack its expected depth, average depth run and share of steps skipped."""
    for stack in ("encoder", "decoder"):
        prefix = f"{_DEPTH}{stack}_"
        if not any(f"{prefix}tokens" in log for log in logging_outputs):
            continue
        for name in _OF_HALTING:
            metrics.log_scalar_sum(
                f"_{prefix}{name}", float(_total(logging_outputs, prefix + name))
            )
        _log_ratio(f"{stack}_expected_depth", f"_{prefix}expected_depth", f"_{prefix}tokens")
        _log_ratio(f"{stack}_depth", f"_{prefix}steps_run", f"_{prefix}tokens")
        _log_ratio(
            f"{stack}_skipped", f"_{prefix}steps_run", f"_{prefix}steps_possible", complement=True
        )


def log_expert_load(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Log how evenly experts are used, over all routed modules.

    `load_cv`: coefficient of variation of an expert's share, mean over modules, 0 when even.
    `load_entropy`: entropy of the shares relative to log num_experts, mean over modules, 1 when
    even. `dead_experts`: number of experts that no token chose since the meters were reset.
    """
    keys = sorted({key for log in logging_outputs for key in log if key.startswith(_LOAD)})
    for key in keys:
        metrics.log_scalar_sum(f"_{key}", _total(logging_outputs, key).double().cpu())
    if keys:
        for name, measure, combine in (
            ("load_cv", coefficient_of_variation, fmean),
            ("load_entropy", relative_entropy, fmean),
            ("dead_experts", lambda load: float((load == 0).sum()), sum),
        ):
            metrics.log_derived(
                name,
                lambda meters, measure=measure, combine=combine: round(
                    combine([measure(meters[f"_{key}"].sum) for key in keys]), 3
                ),
            )


def coefficient_of_variation(load: Tensor) -> float:
    """Standard deviation over mean of non-negative loads `(num_experts,)`; 0 without any load."""
    mean = load.mean()
    return float(load.std(correction=0) / mean) if mean > 0 else 0.0


def relative_entropy(load: Tensor) -> float:
    """Entropy of loads `(num_experts,)` as shares, divided by log num_experts: in [0, 1].

    A single expert counts as evenly loaded.
    """
    if load.numel() == 1:
        return 1.0
    share = load / load.sum().clamp(min=1e-12)
    return float(-torch.xlogy(share, share).sum() / torch.tensor(float(load.numel())).log())


def _total(logging_outputs: Sequence[Mapping[str, Any]], key: str) -> Tensor:
    return torch.as_tensor(sum(log[key] for log in logging_outputs if key in log))


def _log_ratio(
    name: str, numerator: str, denominator: str, *, scale: int = 1, complement: bool = False
) -> None:
    def ratio(meters: Mapping[str, Any]) -> float:
        value = scale * meters[numerator].sum / max(meters[denominator].sum, 1)
        return round(1 - value if complement else value, 3)

    metrics.log_derived(name, ratio)
