"""Auxiliary losses: pure functions of sums, each a scalar to *minimise*.

They are means, so that their size does not depend on the batch size. The decorator alone turns a
function into an option of the criterions (`--NAME-weight`) and a logged value (`NAME_loss`), also
in a plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from sut_fairseq.errors import InputError
from sut_fairseq.statistics import HaltingStatistics, RoutingStatistics

Output = Literal["routing", "halting"]
Function = TypeVar("Function", bound=Callable[..., Tensor | None])


@dataclass(frozen=True)
class AuxiliaryLoss:
    """A term of the objective.

    Attributes:
        name: names its weight (`--NAME-weight`) and its value in the log (`NAME_loss`).
        reads: which of a model's extra outputs it is computed from, separately for each module.
        function: maps these statistics to a scalar; to None if it does not apply to them, because
            it reads a sum that only some kind's statistics have.
        help: description of the term in the help of its weight option.
        always: whether it is added even at weight 0. Together, such terms give every parameter
            of routers and halting units a gradient in every training step, which data-parallel
            training relies on.
    """

    name: str
    reads: Output
    function: Callable[[Any], Tensor | None]
    help: str
    always: bool = False


# In the order in which they are logged.
AUXILIARY_LOSSES: list[AuxiliaryLoss] = []

# Told of each further loss: a plugin's come after the criterions and their options.
LISTENERS: list[Callable[[AuxiliaryLoss], None]] = []


def auxiliary(
    name: str, reads: Output, help: str, *, always: bool = False
) -> Callable[[Function], Function]:
    """Register a function of statistics as an auxiliary loss, see `AuxiliaryLoss`.

    Raises:
        InputError: if there is a loss of this name, from elsewhere.
    """

    def enter(function: Function) -> Function:
        loss = AuxiliaryLoss(name, reads, function, help, always)
        names = [known.name for known in AUXILIARY_LOSSES]
        if name not in names:
            AUXILIARY_LOSSES.append(loss)
        elif _origin(AUXILIARY_LOSSES[names.index(name)]) == _origin(loss):
            AUXILIARY_LOSSES[names.index(name)] = loss  # fairseq may import a plugin twice
        else:
            raise InputError(f"there is an auxiliary loss `{name}` already: choose another name.")
        for tell in LISTENERS:
            tell(loss)
        return function

    return enter


def _origin(loss: AuxiliaryLoss) -> tuple[str, str]:
    return loss.function.__module__, loss.function.__qualname__


def _mean(total: Tensor, weight: Tensor) -> Tensor:
    """total / weight; 0 with zero gradients where nothing was counted (then total is 0 too)."""
    return total / torch.where(weight > 0, weight, 1)


@auxiliary(
    "mutual_information",
    "routing",
    "negative mutual information (the authors' 0.1 was not scaled by the sample size and acted as "
    "about 1e-5)",
    always=True,
)
def mutual_information(statistics: RoutingStatistics) -> Tensor:
    """Negative mutual information of expert and token, -(H(e) - H(e|x)), in nats (SUT Eq. 1).

    The right-hand side as printed; the paper says that it is to be maximised. There every call
    counts alike, here by its weight (see `Halting.call_weights`).

    Bounds: -log num_experts when the experts are used evenly and every choice is certain; 0 when
    routing is uniform or has collapsed onto one expert.
    """
    marginal = _mean(statistics.probability, statistics.weight)
    conditional_entropy = -_mean(statistics.negative_entropy, statistics.weight)
    # xlogy is 0 at 0, but its derivative log(0) + 1 is not finite: clamp inside the logarithm only.
    negative_entropy = marginal * marginal.clamp(min=torch.finfo(marginal.dtype).tiny).log()
    return negative_entropy.sum() + conditional_entropy


@auxiliary("load_balance", "routing", "Switch load-balancing loss")
def load_balance(statistics: RoutingStatistics) -> Tensor:
    """Load balancing, E sum_e f_e P_e (Fedus et al. 2021, Eq. 4): 1 when routing is even.

    f_e is the share of all expert calls that went to expert e (no gradient), P_e the mean
    probability of e. The loss is num_experts when everything goes to one expert (top_k = 1).
    """
    share = _mean(statistics.assignments, statistics.assignments.sum())
    probability = _mean(statistics.probability, statistics.weight)
    return share.numel() * (share.detach() * probability).sum()


@auxiliary("load_variation", "routing", "squared coefficient of variation of expert load")
def squared_coefficient_of_variation(statistics: RoutingStatistics) -> Tensor:
    """Squared coefficient of variation of the summed gates (Shazeer et al. 2017, Eq. 7).

    Var / Mean^2: 0 when even, num_experts - 1 when one expert takes everything. With top_k = 1 it
    has no gradient, because the gate of the chosen expert is renormalised to 1.
    """
    gate = statistics.gate
    return _mean(gate.var(correction=0), gate.mean().square())


@auxiliary("router_z", "routing", "router z-loss")
def router_z(statistics: RoutingStatistics) -> Tensor:
    """Mean squared log-partition of router scores (Zoph et al. 2022, Eq. 5): keeps them small."""
    return _mean(statistics.squared_log_partition, statistics.weight)


@auxiliary("expected_depth", "halting", "expected depth of tokens (L_ACT)", always=True)
def expected_depth(statistics: HaltingStatistics) -> Tensor:
    """Expected number of steps per token, in [1, num_steps] (SUT Eq. 4, L_ACT).

    What is left after the last prediction counts for the last step.
    """
    return _mean(statistics.expected_depth, statistics.tokens)


@auxiliary(
    "remainder",
    "halting",
    "mean remainder of ACT (0.03 worked best for its authors)",
    always=True,
)
def remainder(statistics: HaltingStatistics) -> Tensor:
    """Mean remainder R of a token, in [0, 1] (ponder loss L_ACT of NDR App. A)."""
    return _mean(statistics.remainder, statistics.tokens)
