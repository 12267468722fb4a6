"""Compositional attention: searches choose what they retrieve (Mittal et al. 2022, "COMP")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.interface import Attention, Memory
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.tokens import ActiveTokens

VALUE_SCORES = ("dot-product", "linear")


class ValueScores(nn.Module):
    """How much of each retrieval a search takes (COMP Eq. 11-13).

    softmax_j(Qb_i . Kb_ij / sqrt(retrieval_dim)), or softmax_j(w . [Qb_i; Kb_ij]), with retrieval
    queries Qb_i = X Wb_qi and retrieval keys Kb_ij = Retrieval_ij Wb_k.

    Args:
        embed_dim: size of the attending states.
        num_searches: S.
        head_dim: size of what is retrieved.
        retrieval_dim: size of retrieval queries and keys.
        kind: "dot-product" or "linear"; in the latter only the keys' part counts in the softmax.

    Raises:
        InputError: for another kind.
    """

    def __init__(
        self, embed_dim: int, num_searches: int, head_dim: int, retrieval_dim: int, *, kind: str
    ) -> None:
        super().__init__()
        check_choice("attention_value_scores", kind, VALUE_SCORES)
        self.num_searches = num_searches
        self.retrieval_dim = retrieval_dim
        self.query = xavier_linear(embed_dim, num_searches * retrieval_dim, bias=False)
        self.key = xavier_linear(head_dim, retrieval_dim, bias=False)
        self.linear = None
        if kind == "linear":
            self.linear = xavier_linear(2 * retrieval_dim, 1, bias=False)

    def forward(self, states: Tensor, retrieved: Tensor) -> Tensor:
        """Score, in float32 or better.

        Args:
            states: `(num_tokens, embed_dim)`.
            retrieved: Retrieval, `(num_tokens, S, R, head_dim)`.

        Returns:
            `(num_tokens, S, R)`; each row sums to 1.
        """
        queries = self.query(states).unflatten(-1, (self.num_searches, -1))
        keys = self.key(retrieved)
        if self.linear is None:
            scores = (keys @ queries.unsqueeze(-1)).squeeze(-1) * self.retrieval_dim**-0.5
        else:
            both = torch.cat([queries.unsqueeze(2).expand_as(keys), keys], dim=-1)
            scores = self.linear(both).squeeze(-1)
        exact = scores if scores.dtype == torch.float64 else scores.float()
        return exact.softmax(dim=-1)

    def num_products(self, retrieved: Tensor) -> int:
        """Multiplications of dot products, and of the weighted sum that the scores are for."""
        scored = retrieved[..., 0].numel() * self.retrieval_dim if self.linear is None else 0
        return scored + retrieved.numel()


class CompositionalAttention(Attention):
    """S searches meet R retrievals; each search weighs what it has retrieved (COMP Eq. 7-14).

    Retrieval_ij = Search_i V_j, where Search_i are the weights of query-key pair i and V_j = X Wv_j
    is shared by all searches. CAtt_i = sum_j score_ij Retrieval_ij with the scores of
    `ValueScores`, and the result is concat_i(CAtt_i) W_o. With R = 1 there is nothing to choose.
    Weights are computed once for each search; none are held for each search and retrieval.

    Args:
        core: search and retrieval, the latter `EveryValue`.
        embed_dim: size of the attending states and of the result.
        source_dim: size of the states attended to.
        num_searches, head_dim: S, and the size of queries, keys and values.
        num_retrievals: R.
        retrieval_dim: size of retrieval queries and keys.
        value_scores: the kind of `ValueScores`: "dot-product", or "linear" (the paper's ablation).

    Raises:
        InputError: if R or `retrieval_dim` is less than 1.
    """

    def __init__(
        self,
        core: AttentionCore,
        *,
        embed_dim: int,
        source_dim: int,
        num_searches: int,
        head_dim: int,
        num_retrievals: int,
        retrieval_dim: int,
        value_scores: str = "dot-product",
    ) -> None:
        super().__init__()
        check(num_retrievals >= 1, "attention_retrievals", "at least 1", num_retrievals)
        check(retrieval_dim >= 1, "attention_retrieval_dim", "at least 1", retrieval_dim)
        self.core = core
        self.num_searches = num_searches
        self.num_retrievals = num_retrievals
        self.head_dim = head_dim
        self.query = xavier_linear(embed_dim, num_searches * head_dim, bias=False)
        self.key = xavier_linear(source_dim, num_searches * head_dim, bias=False)
        self.value = xavier_linear(source_dim, num_retrievals * head_dim, bias=False)
        self.output = xavier_linear(num_searches * head_dim, embed_dim, bias=False)
        self.value_scores = None
        if num_retrievals > 1:
            self.value_scores = ValueScores(
                embed_dim, num_searches, head_dim, retrieval_dim, kind=value_scores
            )

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys `(num_tokens, S, head_dim)` and values `(num_tokens, R, head_dim)`."""
        keys = self.key(states).unflatten(-1, (self.num_searches, self.head_dim))
        return keys, self.value(states).unflatten(-1, (self.num_retrievals, self.head_dim))

    def forward(
        self,
        states: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, None]:
        """See `Attention`; `look` is shown "value_scores" `(num_tokens, S, R)` too."""
        queries = self.query(states).view(-1, 1, self.num_searches, self.head_dim)
        retrieved = self.core(queries, tokens, memory, states, look).squeeze(1)
        if self.value_scores is None:
            return self.output(retrieved.flatten(1)), None
        scores = self.value_scores(states, retrieved)
        if look is not None:
            look("value_scores", scores)
        # (num_tokens, S, 1, R) @ (num_tokens, S, R, head_dim)
        chosen = torch.matmul(scores.to(retrieved.dtype).unsqueeze(2), retrieved)
        return self.output(chosen.flatten(1)), None
