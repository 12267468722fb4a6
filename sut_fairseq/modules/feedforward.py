"""Feed-forward kinds: their interface, and the dense layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.observer import Look
from sut_fairseq.statistics import RouterCalls

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module, ABC):
    """Base of the feed-forward kinds: maps each token's state independently."""

    @abstractmethod
    def forward(
        self,
        states: Tensor,
        call_weights: Tensor | None = None,
        active: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, RouterCalls | None]:
        """Transform tokens.

        Args:
            states: `(num_tokens, embed_dim)`.
            call_weights: weight of each token in routing statistics, `(num_tokens,)`; None: 1.
            active: which tokens are active, `(num_tokens,)`; None: all. The result for
                an inactive token is undefined, but finite.
            look: receives the routing, see `Observer.saw`.

        Returns:
            `(num_tokens, embed_dim)`, and the router's calls if the kind is routed.
        """


class DenseFeedForward(FeedForward):
    """y = W2 act(W1 h + b1) + b2.

    Args:
        embed_dim: size of a token's state.
        hidden_dim: size of the hidden layer.
        activation: elementwise function between the two layers.
        activation_dropout: dropout after the activation (DropFFD).
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        hidden_dim: int,
        activation: Activation,
        activation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.activation_dropout = Dropout(activation_dropout)
        self.input = xavier_linear(embed_dim, hidden_dim)
        self.output = xavier_linear(hidden_dim, embed_dim)

    def forward(
        self,
        states: Tensor,
        call_weights: Tensor | None = None,
        active: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, None]:
        hidden = self.activation_dropout(self.activation(self.input(states)))
        return self.output(hidden), None
