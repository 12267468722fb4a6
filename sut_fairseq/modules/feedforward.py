"""Dense feed-forward layer with the interface of the mixture."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.initialization import xavier_linear


class FeedForward(nn.Module):
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
        activation: Callable[[Tensor], Tensor],
        activation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.activation_dropout = Dropout(activation_dropout)
        self.input = xavier_linear(embed_dim, hidden_dim)
        self.output = xavier_linear(hidden_dim, embed_dim)

    def forward(
        self, states: Tensor, call_weights: Tensor | None = None, active: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """Transform tokens `(num_tokens, embed_dim)`, all of them; nothing is routed."""
        hidden = self.activation_dropout(self.activation(self.input(states)))
        return self.output(hidden), None
