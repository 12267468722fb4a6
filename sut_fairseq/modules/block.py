"""Block kinds: what one step of the depth loop does to the active tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.modules.attention.interface import Attention, Memory
from sut_fairseq.modules.copy_gate import CopyGate
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.modules.observer import Look, within
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.statistics import RouterCalls


class BlockOutput(NamedTuple):
    """What one step returns.

    Attributes:
        hidden: new states of the active tokens, `(num_tokens, embed_dim)`.
        routing: the calls of each router, by its module's name in the block.
    """

    hidden: Tensor
    routing: dict[str, RouterCalls]


class Block(nn.Module, ABC):
    """Base of the block kinds.

    Args:
        self_attention, cross_attention: attention kinds; a decoder block has both.
        feed_forward: a feed-forward kind.
    """

    def __init__(
        self,
        self_attention: Attention,
        cross_attention: Attention | None,
        feed_forward: FeedForward,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward

    def keys_values(self, expected: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of self-attention from the attended states `(num_tokens, embed_dim)`.

        See `Attention.keys_values`.
        """
        return self.self_attention.keys_values(expected)

    def cross_keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of cross-attention from encoder states `(num_tokens, source_dim)`."""
        assert self.cross_attention is not None, "only a decoder block attends to an encoder"
        return self.cross_attention.keys_values(states)

    @abstractmethod
    def forward(
        self,
        hidden: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        cross_memory: Memory | None = None,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> BlockOutput:
        """Compute one step for the active tokens.

        Args:
            hidden: states of the active tokens, `(num_tokens, embed_dim)`.
            tokens: where they stand in their sentences.
            memory: keys and values of self-attention.
            cross_memory: keys and values of cross-attention, if the block has one.
            call_weights: weight of each token in routing statistics, `(num_tokens,)`; None: 1.
            look: receives intermediate results, see `Observer.saw`.
        """


class TransformerBlock(Block):
    """Self-attention, optional cross-attention and feed-forward, each with a residual connection.

    Post-norm: x <- LN(x + dropout(sublayer(x))); keys and values are projected from the expected
    states as they are. Pre-norm: x <- x + dropout(sublayer(LN(x))); from the normalised ones.

    Args:
        self_attention, cross_attention: attention kinds; a decoder block has both.
        feed_forward: a feed-forward kind.
        embed_dim: size of a token's state.
        dropout: dropout of each sublayer's result.
        pre_norm: layer norm before instead of after each sublayer.
    """

    def __init__(
        self,
        *,
        self_attention: Attention,
        feed_forward: FeedForward,
        embed_dim: int,
        cross_attention: Attention | None = None,
        dropout: float = 0.0,
        pre_norm: bool = False,
    ) -> None:
        super().__init__(self_attention, cross_attention, feed_forward)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm
        self.self_attention_norm = nn.LayerNorm(embed_dim)
        self.cross_attention_norm = None if cross_attention is None else nn.LayerNorm(embed_dim)
        self.feed_forward_norm = nn.LayerNorm(embed_dim)

    def keys_values(self, expected: Tensor) -> tuple[Tensor, Tensor]:
        if self.pre_norm:
            expected = self.self_attention_norm(expected)
        return super().keys_values(expected)

    def forward(
        self,
        hidden: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        cross_memory: Memory | None = None,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> BlockOutput:
        routing: dict[str, RouterCalls] = {}

        def sublayer(name: str, states: Tensor, *inputs: object) -> Tensor:
            norm = getattr(self, f"{name}_norm")
            normed = norm(states) if self.pre_norm else states
            result, calls = getattr(self, name)(normed, *inputs, within(look, name))
            if calls is not None:
                routing[name] = calls
            states = states + self.dropout(result)
            return states if self.pre_norm else norm(states)

        hidden = sublayer("self_attention", hidden, tokens, memory, call_weights)
        if self.cross_attention is not None:
            hidden = sublayer("cross_attention", hidden, tokens, cross_memory, call_weights)
        hidden = sublayer("feed_forward", hidden, call_weights, tokens.active)
        return BlockOutput(hidden, routing)


class DataRouterBlock(Block):
    """Attention, a feed-forward update, and a gate that copies or updates (NDR Eq. 1-4).

    a = LN(dropout(attention(h)) + h), in a decoder once more with cross-attention; u =
    norm(feed_forward(a)), without a residual; g = copy_gate(a); h' = g u + (1 - g) h.

    Args:
        self_attention, cross_attention, feed_forward: as in `TransformerBlock`.
        dropout: dropout of the attentions' results.
        copy_gate: maps a `(num_tokens, embed_dim)` to g of the same shape.
        update_norm: bounds the update: layer norm, or tanh where attention is not geometric.
        embed_dim: size of a token's state.
    """

    def __init__(
        self,
        *,
        self_attention: Attention,
        feed_forward: FeedForward,
        copy_gate: CopyGate,
        update_norm: nn.Module,
        embed_dim: int,
        cross_attention: Attention | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(self_attention, cross_attention, feed_forward)
        self.copy_gate = copy_gate
        self.update_norm = update_norm
        self.dropout = Dropout(dropout)
        self.self_attention_norm = nn.LayerNorm(embed_dim)
        self.cross_attention_norm = None if cross_attention is None else nn.LayerNorm(embed_dim)

    def forward(
        self,
        hidden: Tensor,
        tokens: ActiveTokens,
        memory: Memory,
        cross_memory: Memory | None = None,
        call_weights: Tensor | None = None,
        look: Look | None = None,
    ) -> BlockOutput:
        calls: dict[str, RouterCalls | None] = {}
        result, calls["self_attention"] = self.self_attention(
            hidden, tokens, memory, call_weights, within(look, "self_attention")
        )
        attended = self.self_attention_norm(hidden + self.dropout(result))
        if self.cross_attention is not None:
            assert cross_memory is not None and self.cross_attention_norm is not None
            result, calls["cross_attention"] = self.cross_attention(
                attended, tokens, cross_memory, call_weights, within(look, "cross_attention")
            )
            attended = self.cross_attention_norm(attended + self.dropout(result))
        result, calls["feed_forward"] = self.feed_forward(
            attended, call_weights, tokens.active, within(look, "feed_forward")
        )
        update, gate = self.update_norm(result), self.copy_gate(attended)
        if look is not None:
            look("gate", gate)
        routing = {name: one for name, one in calls.items() if one is not None}
        # g u + (1 - g) h, in h's precision: in bfloat16 the two shares would not add up to 1.
        update, gate = update.to(hidden.dtype), gate.to(hidden.dtype)
        return BlockOutput(torch.lerp(hidden, update, gate), routing)
