"""Dense multi-head attention."""

from __future__ import annotations

from torch import Tensor

from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.attention.projection import KeyValueProjection
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.tokens import ActiveTokens


class MultiheadAttention(KeyValueProjection):
    """Multi-head attention (Vaswani et al. 2017).

    Args:
        core: search and retrieval.
        embed_dim: size of the attending states and of the result.
        source_dim: size of the states attended to.
        num_heads, head_dim: their product need not be `embed_dim`.
        bias: whether all projections have biases.
    """

    def __init__(
        self,
        core: AttentionCore,
        *,
        embed_dim: int,
        source_dim: int,
        num_heads: int,
        head_dim: int,
        bias: bool = False,
    ) -> None:
        super().__init__(source_dim, num_heads, head_dim, bias=bias, reads_keys=core.reads_keys)
        self.core = core
        self.query = xavier_linear(embed_dim, num_heads * head_dim, bias=bias)
        self.output = xavier_linear(num_heads * head_dim, embed_dim, bias=bias)

    def forward(
        self,
        states: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, None]:
        queries = self.query(states).view(-1, 1, self.num_heads, self.head_dim)
        return self.output(self.core(queries, tokens, memory, states, look).flatten(1)), None
