"""Which experts a token is sent to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact, exact_softmax
from sut_fairseq.statistics import RouterCalls


class Routing(NamedTuple):
    """The decision of a router for a list of tokens.

    Attributes:
        expert_indices: chosen experts, `(num_tokens, top_k)`, int64.
        expert_weights: their weights, `(num_tokens, top_k)`; each row sums to 1.
        calls: the decision in the form that statistics need.
    """

    expert_indices: Tensor
    expert_weights: Tensor
    calls: RouterCalls

    def show(self, look: Look | None) -> None:
        """Show the chosen experts and their weights to `look`, if it is given."""
        if look is not None:
            look("expert_indices", self.expert_indices)
            look("expert_weights", self.expert_weights)


class Router(nn.Module):
    """Two-layer gating network with a top-k choice (SUT 3.1).

    scores = W_2 dropout(tanh(W_1 h + b_1)); g(e|h) = softmax(scores). The k greatest g are kept
    and renormalised to sum to 1. The softmax is computed in float32 (float64 for float64 input)
    whatever the model's dtype.

    Args:
        embed_dim: size of a token's state.
        num_experts: number of experts to choose from.
        top_k: number of experts each token uses.
        dropout: dropout of the hidden layer (DropGAT).
        sample: in training, draw the k experts without replacement from g instead of taking the
            k greatest; evaluation always takes the greatest.

    Raises:
        InputError: if `top_k` is not between 1 and `num_experts`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_experts: int,
        top_k: int,
        *,
        dropout: float = 0.0,
        sample: bool = False,
    ) -> None:
        super().__init__()
        requirement = f"between 1 and `num_experts` ({num_experts})"
        check(1 <= top_k <= num_experts, "top_k", requirement, top_k)
        self.num_experts = num_experts
        self.top_k = top_k
        self.sample = sample
        self.input = nn.Linear(embed_dim, embed_dim)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(embed_dim, num_experts, bias=False)

    def forward(self, states: Tensor, call_weights: Tensor | None = None) -> Routing:
        """Route tokens.

        Args:
            states: `(num_tokens, embed_dim)`.
            call_weights: weight of each token in the statistics, `(num_tokens,)`; None means 1.

        Returns:
            the decision; `expert_weights` in the dtype of `states`.
        """
        scores = exact(self.output(self.dropout(torch.tanh(self.input(states)))))
        preference = scores
        if self.sample and self.training:
            # Adding Gumbel noise and taking the k greatest samples without replacement from g.
            preference = scores - torch.empty_like(scores).exponential_().log()
        expert_indices = preference.topk(self.top_k, dim=-1).indices
        # Renormalising k softmax values is the softmax of their k scores.
        expert_weights = exact_softmax(scores.gather(-1, expert_indices))
        calls = RouterCalls(scores, expert_indices, expert_weights, call_weights)
        return Routing(expert_indices, expert_weights.to(states.dtype), calls)
