"""Mixture of multi-head attention, MoMHA (SUT 3.1)."""

from __future__ import annotations

from torch import Tensor

from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.attention.projection import KeyValueProjection
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.routing.dispatch import Dispatch
from sut_fairseq.modules.routing.experts import ExpertInput, ExpertOutput
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import RouterCalls


class MixtureAttention(KeyValueProjection):
    """Each token attends with the heads of the experts it is routed to.

    One set of keys and values is shared by all experts; expert e has a query projection and an
    output projection of its own, both under the same routing decision:
    y = sum over the chosen experts of g(e|h) concat_heads(attention(W_q,e h, K, V)) W_o,e.
    With one head per expert this is the mixture of attention heads, MoA (Zhang et al. 2022).

    Args:
        core: search and retrieval.
        router: chooses among its `num_experts` experts for each token.
        embed_dim: size of the attending states and of the result.
        source_dim: size of the states attended to.
        num_heads, head_dim: heads of each expert and their size.
        expert_backend: see `ExpertInput`.
    """

    def __init__(
        self,
        core: AttentionCore,
        router: Router,
        *,
        embed_dim: int,
        source_dim: int,
        num_heads: int,
        head_dim: int,
        expert_backend: str = "auto",
    ) -> None:
        super().__init__(source_dim, num_heads, head_dim)
        self.core = core
        self.router = router
        inner_dim = num_heads * head_dim
        self.query = ExpertInput(
            router.num_experts, embed_dim, inner_dim, bias=False, backend=expert_backend
        )
        self.output = ExpertOutput(
            router.num_experts, inner_dim, embed_dim, bias=False, backend=expert_backend
        )

    def forward(
        self,
        states: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, RouterCalls]:
        routing = self.router(states, call_weights)
        routing.show(look)
        dispatch = Dispatch.from_indices(
            routing.expert_indices, self.router.num_experts, tokens.active
        )
        queries = dispatch.unsort(self.query(states, dispatch))
        queries = queries.unflatten(-1, (self.num_heads, self.head_dim))
        context = self.core(queries, tokens, memory, states, look).flatten(2)
        rows = dispatch.sort_pairs(context)
        return self.output(rows, routing.expert_weights, dispatch), routing.calls
