"""Sufficient statistics of routing and halting: sums that add up over steps, batches and workers.

A depth loop returns these sums; `losses` turns them into scalars. Nothing is averaged before the
end, so that every call has its proper weight (SUT Eq. 1 runs over all steps and tokens together).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from torch import Tensor


@dataclass
class _Additive:
    """Field-wise `+` for a dataclass whose fields are tensors of sums."""

    def __add__(self, other: Self) -> Self:
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return type(self)(*sums)


class RouterCalls(NamedTuple):
    """A router's decisions for a list of tokens, in the form that statistics need.

    Attributes:
        scores: its scores before the softmax, `(num_tokens, num_experts)`, float32 or better.
        expert_indices: chosen experts, `(num_tokens, top_k)`; `num_experts` in place of an expert
            where a token has fewer of them than others, as when experts choose their tokens.
        expert_weights: their renormalised weights, `(num_tokens, top_k)`, float32 or better.
        call_weights: weight of each token, `(num_tokens,)`, e.g. its probability of not having
            halted; 0 removes the token; None means 1 for all.
    """

    scores: Tensor
    expert_indices: Tensor
    expert_weights: Tensor
    call_weights: Tensor | None


@dataclass
class RoutingStatistics(_Additive):
    """Weighted sums over the calls of one router; x runs over calls, w_x is the weight of a call.

    Attributes:
        weight: sum of w_x, scalar.
        probability: sum of w_x g(e|x), `(num_experts,)`.
        negative_entropy: sum of w_x sum_e g(e|x) log g(e|x) in nats, scalar.
        gate: sum of w_x times the renormalised weight of each chosen expert, `(num_experts,)`.
        assignments: sum of w_x over the calls that chose the expert, `(num_experts,)`; no gradient.
        squared_log_partition: sum of w_x (log sum_e exp scores)^2, scalar.
    """

    weight: Tensor
    probability: Tensor
    negative_entropy: Tensor
    gate: Tensor
    assignments: Tensor
    squared_log_partition: Tensor


@dataclass
class HaltingStatistics(_Additive):
    """Sums over the tokens of one stack, padding excluded.

    Attributes:
        tokens: number of tokens, scalar.
        expected_depth: sum over tokens of sum_l a_l l (ACT: p(l) l), with the mass left over
            counted on the last step, scalar.
        steps_run: number of (token, step) pairs that were computed, scalar; no gradient.
        steps_possible: number of tokens times the number of steps, scalar; no gradient.
        remainder: sum over tokens of R, the mass that goes to a token's last state because it is
            left over, not because it was predicted (stick-breaking: the mass left for the last
            step), scalar.
    """

    tokens: Tensor
    expected_depth: Tensor
    steps_run: Tensor
    steps_possible: Tensor
    remainder: Tensor

    @property
    def depth(self) -> Tensor:
        """Number of steps run per token, in [1, num_steps]; 0 without tokens, scalar."""
        return self.steps_run / self.tokens.clamp(min=1)

    @property
    def skipped(self) -> Tensor:
        """Share of all (token, step) pairs that halting left out, in [0, 1], scalar.

        It is 1 where there are no tokens.
        """
        return 1 - self.steps_run / self.steps_possible.clamp(min=1)


def route_statistics(calls: Sequence[RouterCalls]) -> RoutingStatistics:
    """Sum the statistics of one router over all its calls, in float32 or better.

    All steps of a depth loop are summed at once: step by step, this would be a sixth of all
    operations in a training step of `sut_base`.

    Args:
        calls: the router's calls, at least one.

    Returns:
        the sums. The call weights get no gradient: a balancing loss shapes the routing, not when
        tokens halt.
    """
    scores = _join([one.scores for one in calls])
    weights = _join([_weights(one) for one in calls])
    indices = _join([one.expert_indices.reshape(-1) for one in calls])
    expert_weights = _join([one.expert_weights for one in calls])
    # On a CPU, log_softmax along a short last axis takes ten times as long.
    log_probabilities = scores.t().contiguous().log_softmax(dim=0)
    weighted = weights * log_probabilities.exp()
    log_partition = scores[:, 0] - log_probabilities[0]  # what log_softmax has subtracted
    chosen = weights.unsqueeze(-1).expand_as(expert_weights)
    per_expert = scores.new_zeros(scores.shape[1] + 1)  # the last one is none
    # Products and sums, not `@`: autocast would run a matrix product in half precision.
    return RoutingStatistics(
        weight=weights.sum(),
        probability=weighted.sum(dim=1),
        negative_entropy=(weighted * log_probabilities).sum(),
        gate=per_expert.index_add(0, indices, (chosen * expert_weights).reshape(-1))[:-1],
        assignments=per_expert.index_add(0, indices, chosen.reshape(-1))[:-1],
        squared_log_partition=(weights * log_partition.square()).sum(),
    )


def _weights(calls: RouterCalls) -> Tensor:
    scores, weights = calls.scores, calls.call_weights
    return scores.new_ones(len(scores)) if weights is None else weights.detach().to(scores.dtype)


def _join(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
