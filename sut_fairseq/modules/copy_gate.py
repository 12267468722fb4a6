"""The copy gate: which columns a step transforms, and which it leaves as they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.initialization import xavier_linear

# Hardly anything is updated at first: gradients flow through all steps, and steps are learned as
# they are needed (NDR 2.1).
_INITIAL_BIAS = -3.0


class CopyGate(nn.Module):
    """g = sigmoid(W_2 max(W_1 a + b_1, 0) + b_2), b_2 starting at -3 (NDR Eq. 3 and 5).

    Args:
        embed_dim: size of a token's state, of the hidden layer, and of the gate.
        dropout: probability of closing a token's whole gate in training; the other gates are not
            scaled up.
        hidden_dropout: dropout of the hidden layer.
    """

    def __init__(
        self, embed_dim: int, *, dropout: float = 0.0, hidden_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden_dropout = Dropout(hidden_dropout)
        self.input = xavier_linear(embed_dim, embed_dim)
        self.output = xavier_linear(embed_dim, embed_dim)
        nn.init.constant_(self.output.bias, _INITIAL_BIAS)

    def forward(self, attended: Tensor) -> Tensor:
        """Gates of tokens after attention, `(num_tokens, embed_dim)`, in [0, 1]: 0 copies."""
        gate = self.output(self.hidden_dropout(self.input(attended).relu())).sigmoid()
        if self.training and self.dropout > 0:
            gate = gate * (torch.rand_like(gate[:, :1]) >= self.dropout)
        return gate

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"
