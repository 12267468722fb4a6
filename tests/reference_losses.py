"""The auxiliary losses as plain loops over the calls of one router; see `references`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.references import Call


def mean(calls: Sequence[Call], value: Callable[[Call], Tensor | float]) -> Tensor:
    """Mean of a call's value, each call with its weight."""
    return sum(call.weight * value(call) for call in calls) / sum(call.weight for call in calls)


def mutual_information(calls: Sequence[Call]) -> Tensor:
    """-(H(e) - H(e|h)) over all calls (SUT Eq. 1, with the sign that is to be minimised)."""
    num_experts = len(calls[0].probabilities)
    marginal = [mean(calls, lambda call, e=e: call.probabilities[e]) for e in range(num_experts)]
    conditional = mean(calls, lambda call: -sum(p * torch.log(p) for p in call.probabilities))
    return sum(p * torch.log(p) for p in marginal) + conditional


def load_balance(calls: Sequence[Call]) -> Tensor:
    """E sum_e f_e P_e (Fedus et al. 2021, Eq. 4); f_e: share of the assignments of expert e."""
    num_experts, top_k = len(calls[0].probabilities), len(calls[0].gates)
    total: Tensor | float = 0.0
    for expert in range(num_experts):
        share = mean(calls, lambda call, e=expert: float(e in call.gates)) / top_k
        total = total + share * mean(calls, lambda call, e=expert: call.probabilities[e])
    return num_experts * total


def squared_coefficient_of_variation(calls: Sequence[Call]) -> Tensor:
    """Var / Mean^2 over experts of the summed gates (Shazeer et al. 2017, Eq. 6 and 7)."""
    num_experts = len(calls[0].probabilities)
    importance = [
        sum(call.weight * call.gates[e] for call in calls if e in call.gates)
        for e in range(num_experts)
    ]
    average = sum(importance) / num_experts
    return sum((value - average) ** 2 for value in importance) / num_experts / average**2


def router_z(calls: Sequence[Call]) -> Tensor:
    """Mean of the squared log-partition (Zoph et al. 2022, Eq. 5)."""
    return mean(calls, lambda call: call.log_partition**2)
