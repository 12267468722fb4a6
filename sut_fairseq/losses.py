"""Auxiliary losses: pure functions of sums, each a scalar to *minimise*.

They are means, so that their size does not depend on the batch size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sut_fairseq.statistics import HaltingStatistics, RoutingStatistics


def _mean(total: Tensor, weight: Tensor) -> Tensor:
    """total / weight, and 0 rather than NaN where nothing was counted (then total is 0 too)."""
    return total / weight.clamp(min=torch.finfo(weight.dtype).tiny)


def mutual_information(statistics: RoutingStatistics) -> Tensor:
    """Negative mutual information of expert and token, -(H(e) - H(e|x)), in nats (SUT Eq. 1).

    Bounds: -log num_experts when the experts are used evenly and every choice is certain; 0 when
    routing is uniform or has collapsed onto one expert.
    """
    marginal = _mean(statistics.probability, statistics.weight)
    conditional_entropy = -_mean(statistics.negative_entropy, statistics.weight)
    # xlogy is 0 at 0, but its derivative log(0) + 1 is not finite: clamp inside the logarithm only.
    negative_entropy = marginal * marginal.clamp(min=torch.finfo(marginal.dtype).tiny).log()
    return negative_entropy.sum() + conditional_entropy


def load_balance(statistics: RoutingStatistics) -> Tensor:
    """Load balancing, E sum_e f_e P_e (Fedus et al. 2021, Eq. 4): 1 when routing is even.

    f_e is the share of all expert calls that went to expert e (no gradient), P_e the mean
    probability of e. num_experts when everything goes to one expert (top_k = 1).
    """
    share = _mean(statistics.assignments, statistics.assignments.sum())
    probability = _mean(statistics.probability, statistics.weight)
    return share.numel() * (share.detach() * probability).sum()


def squared_coefficient_of_variation(statistics: RoutingStatistics) -> Tensor:
    """Squared coefficient of variation of the summed gates (Shazeer et al. 2017, Eq. 7).

    Var / Mean^2: 0 when even, num_experts - 1 when one expert takes everything.
    """
    gate = statistics.gate
    return _mean(gate.var(correction=0), gate.mean().square())


def router_z(statistics: RoutingStatistics) -> Tensor:
    """Mean squared log-partition of router scores (Zoph et al. 2022, Eq. 5): keeps them small."""
    return _mean(statistics.squared_log_partition, statistics.weight)


def expected_depth(statistics: HaltingStatistics) -> Tensor:
    """Expected number of steps per token, in [1, num_steps] (SUT Eq. 4, L_ACT)."""
    return _mean(statistics.expected_depth, statistics.tokens)


def remainder(statistics: HaltingStatistics) -> Tensor:
    """Mean remainder R of a token, in [0, 1] (ponder loss L_ACT of NDR App. A)."""
    return _mean(statistics.remainder, statistics.tokens)
