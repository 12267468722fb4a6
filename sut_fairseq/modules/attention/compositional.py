"""Compositional attention: searches choose what they retrieve (Mittal et al. 2022, "COMP")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.interface import Attention, Memory
from sut_fairseq.modules.attention.retrieve import EveryValue, OwnValues
from sut_fairseq.modules.initialization import xavier_linear
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.precision import exact_softmax
from sut_fairseq.modules.tokens import ActiveTokens

VALUE_SCORES = ("dot-product", "linear")
VALUE_MATRICES = ("shared", "own")


class ValueScores(nn.Module):
    """How much of each retrieval a search takes (COMP Eq. 11-13).

    softmax_j(Qb_i . Kb_ij / sqrt(retrieval_dim)), or softmax_j(w . [Qb_i; Kb_ij]), with retrieval
    queries Qb_i = X Wb_qi and retrieval keys Kb_ij = Retrieval_ij Wb_k.

    Args:
        embed_dim: size of the attending states.
        num_searches: S.
        value_dim: size of what is retrieved.
        retrieval_dim: size of retrieval queries and keys.
        kind: "dot-product" or "linear"; in the latter only the keys' part affects the softmax.
        bias: whether retrieval queries have a bias, a search's preference regardless of the state.
            A bias of the keys would add the same to all scores of a search.

    Raises:
        InputError: for an unknown kind, or if `retrieval_dim` is less than 1.
    """

    def __init__(
        self,
        embed_dim: int,
        num_searches: int,
        value_dim: int,
        retrieval_dim: int,
        *,
        kind: str,
        bias: bool = False,
    ) -> None:
        super().__init__()
        check_choice("attention_value_scores", kind, VALUE_SCORES)
        check(retrieval_dim >= 1, "attention_retrieval_dim", "at least 1", retrieval_dim)
        self.num_searches = num_searches
        self.retrieval_dim = retrieval_dim
        self.query = xavier_linear(embed_dim, num_searches * retrieval_dim, bias=bias)
        self.key = xavier_linear(value_dim, retrieval_dim, bias=False)
        self.linear = None
        if kind == "linear":
            self.linear = xavier_linear(2 * retrieval_dim, 1, bias=False)

    def forward(self, states: Tensor, retrieved: Tensor) -> Tensor:
        """Score, in float32 or better.

        Args:
            states: `(num_tokens, embed_dim)`.
            retrieved: Retrieval, `(num_tokens, S, R, value_dim)`.

        Returns:
            `(num_tokens, S, R)`; each row sums to 1.
        """
        queries = self.query(states).unflatten(-1, (self.num_searches, -1))
        # Qb . (W r) = (W^T Qb) . r: only S queries are projected, not S x R retrievals.
        if self.linear is None:
            projected = torch.matmul(queries * self.retrieval_dim**-0.5, self.key.weight)
            scores = _dots(projected, retrieved)
        else:
            of_query, of_key = self.linear.weight.squeeze(0).split(self.retrieval_dim)
            projected = torch.matmul(of_key, self.key.weight)
            scores = torch.matmul(queries, of_query).unsqueeze(-1) + _dots(projected, retrieved)
        return exact_softmax(scores)

    def num_products(self, retrieved: Tensor) -> tuple[int, int]:
        """Multiplications with weights; those of dot products and of the sum weighted by scores."""
        num_tokens, num_searches, _, value_dim = retrieved.shape
        if self.linear is None:
            with_weights = num_tokens * num_searches * self.retrieval_dim * value_dim
        else:
            with_weights = (num_tokens * num_searches + value_dim) * self.retrieval_dim
        return with_weights, 2 * retrieved.numel()


def _dots(projected: Tensor, retrieved: Tensor) -> Tensor:
    """Dot products of `([num_tokens, S,] value_dim)` and `(num_tokens, S, R, value_dim)`.

    Not a matrix product, which for one row is slower on a CPU.
    """
    return (projected.unsqueeze(-2) * retrieved).sum(dim=-1)


class CompositionalAttention(Attention):
    """S searches, each with R retrievals that it weighs by their scores (COMP Eq. 7-14).

    Retrieval_ij = Search_i V_j, where Search_i are the weights of query-key pair i and V_j = X Wv_j
    is shared by all searches, or V_ij = X Wv_ij if each has its own. CAtt_i = sum_j score_ij
    Retrieval_ij with the scores of `ValueScores`, and the result is concat_i(CAtt_i) W_o. With
    R = 1 there is nothing to choose. Attention weights are computed and held once for each search,
    not for each search and retrieval.

    Args:
        core: the search; its retrieval is set here.
        embed_dim: size of the attending states and of the result.
        source_dim: size of the states attended to.
        num_searches, head_dim: S, and the size of queries and keys.
        num_retrievals, value_dim: R, and the size of values.
        value_matrices: "shared" by all searches, or each search's "own".
        retrieval_dim: size of retrieval queries and keys.
        value_scores: the kind of `ValueScores`: "dot-product", or "linear" (the paper's ablation).
        score_bias: whether retrieval queries have a bias.
        bias: whether all other projections have biases (those of `ValueScores` aside).

    Raises:
        InputError: if a number is less than 1, or for an unknown kind.
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
        value_dim: int,
        retrieval_dim: int,
        value_matrices: str = "shared",
        value_scores: str = "dot-product",
        score_bias: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        check(num_retrievals >= 1, "attention_retrievals", "at least 1", num_retrievals)
        check(value_dim >= 1, "attention_value_dim", "at least 1", value_dim)
        check_choice("attention_value_matrices", value_matrices, VALUE_MATRICES)
        self.core = core
        self.num_heads = num_searches
        self.head_dim = head_dim
        self.value_dim = value_dim
        own = value_matrices == "own"
        num_values = num_retrievals * (num_searches if own else 1)
        self.query = xavier_linear(embed_dim, num_searches * head_dim, bias=bias)
        self.key = (
            xavier_linear(source_dim, num_searches * head_dim, bias=bias)
            if core.reads_keys
            else None
        )
        self.value = xavier_linear(source_dim, num_values * value_dim, bias=bias)
        self.output = xavier_linear(num_searches * value_dim, embed_dim, bias=bias)
        self.value_scores = None
        if num_retrievals > 1:  # else heads are paired, which torch's fused attention can do
            core.retrieve = OwnValues(num_retrievals) if own else EveryValue()
            self.value_scores = ValueScores(
                embed_dim,
                num_searches,
                value_dim,
                retrieval_dim,
                kind=value_scores,
                bias=score_bias,
            )

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys `(num_tokens, S, head_dim or 0)`, values `(num_tokens, R or S * R, value_dim)`."""
        values = self.value(states).unflatten(-1, (-1, self.value_dim))
        if self.key is None:  # they are not read
            return states.new_empty(len(states), self.num_heads, 0), values
        return self.key(states).unflatten(-1, (-1, self.head_dim)), values

    def forward(
        self,
        states: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> tuple[Tensor, None]:
        """See `Attention`; `look` also receives "value_scores" `(num_tokens, S, R)`."""
        queries = self.query(states).view(-1, 1, self.num_heads, self.head_dim)
        retrieved = self.core(queries, tokens, memory, states, look).squeeze(1)
        if self.value_scores is None:
            return self.output(retrieved.flatten(1)), None
        scores = self.value_scores(states, retrieved)
        if look is not None:
            look("value_scores", scores)
        chosen = (scores.to(retrieved.dtype).unsqueeze(-1) * retrieved).sum(dim=2)
        return self.output(chosen.flatten(1)), None
