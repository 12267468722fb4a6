"""Content and direction, the scores of geometric attention (NDR Eq. 9-10)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.positions.interface import Pairing, Scores, of_heads
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.initialization import xavier_linear


class Direction(Scores):
    """Content and direction, for geometric attention (NDR Eq. 9-10).

    score(i, j) = alpha (q_i + b) . k_j + beta D_ij + gamma, where D_ij is a linear function of
    state h_i for each head: one for keys at or after i, another for keys before. alpha starts at
    1 / sqrt(head_dim), beta at 1, gamma at 0.

    Args:
        embed_dim: size of a query's state.
        num_heads, head_dim: heads and their size.
        dropout: dropout of the content queries.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, head_dim: int, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.direction = xavier_linear(embed_dim, 2 * num_heads)
        self.content_bias = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.alpha = nn.Parameter(torch.tensor(head_dim**-0.5))
        self.beta = nn.Parameter(torch.tensor(1.0))
        self.gamma = nn.Parameter(torch.tensor(0.0))
        self.dropout = Dropout(dropout)

    def of_states(self, states: Tensor) -> Tensor:
        """beta D + gamma at or after and before the query, `(num_tokens, num_heads, 2)`."""
        return (self.beta * self.direction(states) + self.gamma).unflatten(-1, (self.num_heads, 2))

    def forward(self, pairing: Pairing) -> Tensor:
        queries, keys = pairing.queries, pairing.keys
        assert pairing.of_states is not None and pairing.positions is not None
        after, before = pairing.of_states.unsqueeze(3).to(queries.dtype).split(1, dim=-1)
        content = self.dropout(queries + of_heads(self.content_bias, queries))
        content = content * self.alpha.to(queries.dtype)
        # One more product gives every key the score of keys before; the difference is then added.
        top_k = queries.shape[3]
        queries = torch.cat([content, before.expand(*queries.shape[:4], 1)], dim=-1)
        keys = torch.cat([keys.to(queries.dtype), torch.ones_like(keys[..., :1])], dim=-1)
        places = torch.arange(keys.shape[2], device=keys.device)
        is_after = (places >= pairing.positions.unsqueeze(-1)).unsqueeze(1).to(queries.dtype)
        difference = (after - before).expand(*queries.shape[:4], 1).flatten(2, 3)
        # In place on the product itself: on a view of it, autograd would copy the gradient.
        scores = queries.flatten(2, 3) @ keys.transpose(2, 3)
        scores = scores.addcmul_(difference, is_after.repeat_interleave(top_k, dim=2))
        return scores.view(*queries.shape[:4], -1)
