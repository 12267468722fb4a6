"""Mixture of feed-forward experts (SUT 3.1)."""

from __future__ import annotations

from torch import Tensor

from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.feedforward import Activation, FeedForward
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.routing.dispatch import Dispatch
from sut_fairseq.modules.routing.experts import ExpertInput, ExpertOutput
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.statistics import RouterCalls


class MixtureFeedForward(FeedForward):
    """y = sum over the chosen experts of g(e|h) (W2_e act(W1_e h + b1_e) + b2_e).

    Args:
        router: chooses among its `num_experts` experts for each token.
        embed_dim: size of a token's state.
        hidden_dim: size of each expert's hidden layer.
        activation: elementwise function between the two layers.
        activation_dropout: dropout after the activation (DropFFD).
        expert_backend: see `ExpertInput`.
    """

    def __init__(
        self,
        router: Router,
        *,
        embed_dim: int,
        hidden_dim: int,
        activation: Activation,
        activation_dropout: float = 0.0,
        expert_backend: str = "auto",
    ) -> None:
        super().__init__()
        self.router = router
        self.activation = activation
        self.activation_dropout = Dropout(activation_dropout)
        self.input = ExpertInput(
            router.num_experts, embed_dim, hidden_dim, bias=True, backend=expert_backend
        )
        self.output = ExpertOutput(
            router.num_experts, hidden_dim, embed_dim, bias=True, backend=expert_backend
        )

    def forward(
        self,
        states: Tensor,
        call_weights: Tensor | None = None,
        active: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, RouterCalls]:
        """See `FeedForward`; inactive tokens become 0."""
        routing = self.router(states, call_weights)
        routing.show(look)
        dispatch = Dispatch.from_indices(routing.expert_indices, self.router.num_experts, active)
        hidden = self.input(states, dispatch)
        hidden = self.activation_dropout(self.activation(hidden))
        return self.output(hidden, routing.expert_weights, dispatch), routing.calls
