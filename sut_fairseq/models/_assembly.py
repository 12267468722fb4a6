"""From options to modules: the only place that turns a kind's name into a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fairseq import utils
from torch import nn

from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.act import DehghaniHalting, GravesHalting
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions import Geometric, Softmax
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.attention.multihead import MultiheadAttention
from sut_fairseq.modules.attention.position_scores import RelativeBuckets, RelativeWindow
from sut_fairseq.modules.attention.state_scores import (
    AbsoluteRelativePositions,
    Direction,
    TransformerXLPositions,
)
from sut_fairseq.modules.block import Block, DataRouterBlock, TransformerBlock
from sut_fairseq.modules.copy_gate import CopyGate
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.modules.halting import StickBreakingHalting
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.stack import Stack


@dataclass(frozen=True)
class _Side:
    """The options of one stack, with the decoder's defaults filled in from the encoder's."""

    name: Literal["encoder", "decoder"]
    embed_dim: int
    source_dim: int
    num_steps: int
    num_heads: int
    head_dim: int
    hidden_dim: int
    block: str
    pre_norm: bool
    halting: str

    @property
    def causal(self) -> bool:
        return self.name == "decoder"

    @classmethod
    def of(cls, options: Any, name: Literal["encoder", "decoder"]) -> _Side:
        def own_or_encoder(option: str) -> Any:
            value = getattr(options, f"{name}_{option}")
            return getattr(options, f"encoder_{option}") if value is None else value

        embed_dim = own_or_encoder("embed_dim")
        num_heads = own_or_encoder("attention_heads")
        check(num_heads >= 1, f"{name}_attention_heads", "at least 1", num_heads)
        head_dim = options.attention_head_dim
        if head_dim is None:
            check(
                embed_dim % num_heads == 0,
                f"{name}_embed_dim",
                f"a multiple of `{name}_attention_heads` ({num_heads}) unless "
                "`attention_head_dim` is given",
                embed_dim,
            )
            head_dim = embed_dim // num_heads
        check(head_dim >= 1, "attention_head_dim", "at least 1", head_dim)
        return cls(
            name=name,
            embed_dim=embed_dim,
            source_dim=options.encoder_embed_dim,
            num_steps=getattr(options, f"{name}_layers"),
            num_heads=num_heads,
            head_dim=head_dim,
            hidden_dim=own_or_encoder("ffn_embed_dim"),
            block=str(getattr(options, f"{name}_block")),
            pre_norm=getattr(options, f"{name}_normalize_before"),
            halting=str(getattr(options, f"{name}_halting")),
        )


def decoder_embed_dim(options: Any) -> int:
    """Size of a target token's state."""
    return _Side.of(options, "decoder").embed_dim


def build_stack(options: Any, name: Literal["encoder", "decoder"]) -> Stack:
    """Build the encoder's or the decoder's stack.

    Args:
        options: a `UniversalTransformerConfig` or anything with its attributes.
        name: which stack; the decoder's is causal and has cross-attention.

    Raises:
        ValueError: if an option has a value that is not allowed.
    """
    side = _Side.of(options, name)
    decodes = name == "decoder"
    # Checked here as well as where it is used: with both stacks' halting off nothing would see it.
    threshold = options.alpha_threshold
    _check_number("alpha_threshold", "a number", threshold, (int, float))
    check(0 < threshold <= 1, "alpha_threshold", "greater than 0, at most 1", threshold)
    epsilon = options.halting_epsilon
    _check_number("halting_epsilon", "a number", epsilon, (int, float))
    check(0 < epsilon < 1, "halting_epsilon", "greater than 0, less than 1", epsilon)
    _check_number(f"{name}_layers", "a whole number", side.num_steps, (int,))
    check(side.num_steps >= 1, f"{name}_layers", "at least 1", side.num_steps)
    check_choice(f"{name}_halting", side.halting, _HALTING)
    core = AttentionCore(dropout=options.attention_dropout)
    parts = dict(
        self_attention=_attention(options, side, _self_attention_core(options, side)),
        cross_attention=_attention(options, side, core, crosses=True) if decodes else None,
        feed_forward=_feed_forward(options, side),
        embed_dim=side.embed_dim,
        dropout=options.dropout,
    )
    check_choice(f"{name}_block", side.block, _BLOCK)
    return Stack(
        _BLOCK[side.block](options, side, parts),
        side.num_steps,
        halting=_HALTING[side.halting](options, side),
        final_norm=nn.LayerNorm(side.embed_dim) if side.pre_norm else None,
        checkpoint_activations=options.checkpoint_activations,
        layout=str(options.token_layout),
    )


def _check_number(name: str, kind: str, value: object, types: tuple[type, ...]) -> None:
    """Refuse what only `--model-overrides` can give, where fairseq checks no types: '0.8', True."""
    check(isinstance(value, types) and not isinstance(value, bool), name, kind, repr(value))


def _self_attention_core(options: Any, side: _Side) -> AttentionCore:
    kind, distribution = str(options.attention_positions), str(options.attention_distribution)
    check_choice("attention_positions", kind, _POSITIONS)
    check_choice("attention_distribution", distribution, _DISTRIBUTION)
    query_dropout = options.attention_query_dropout
    check(0 <= query_dropout <= 1, "attention_query_dropout", "in [0, 1]", query_dropout)
    return AttentionCore(
        positions=_POSITIONS[kind](options, side),
        distribution=_DISTRIBUTION[distribution](side),
        dropout=options.attention_dropout,
        causal=side.causal,
    )


def _attention(
    options: Any, side: _Side, core: AttentionCore, *, crosses: bool = False
) -> Attention:
    shape = dict(
        embed_dim=side.embed_dim,
        source_dim=side.source_dim if crosses else side.embed_dim,
        num_heads=side.num_heads,
        head_dim=side.head_dim,
    )
    num_experts = options.attention_experts
    router = _router(options, side, "attention", num_experts, options.attention_top_k)
    return _ATTENTION[_kind(router)](options, core, router, shape)


def _feed_forward(options: Any, side: _Side) -> nn.Module:
    activation = str(options.activation_fn)
    check_choice("activation_fn", activation, utils.get_available_activation_fns())
    check(side.hidden_dim >= 1, f"{side.name}_ffn_embed_dim", "at least 1", side.hidden_dim)
    shape = dict(
        embed_dim=side.embed_dim,
        hidden_dim=side.hidden_dim,
        activation=utils.get_activation_fn(activation),
        activation_dropout=options.activation_dropout,
    )
    router = _router(options, side, "ffn", options.ffn_experts, options.ffn_top_k)
    return _FEED_FORWARD[_kind(router)](options, router, shape)


def _router(options: Any, side: _Side, kind: str, num_experts: int, top_k: int) -> Router | None:
    """The router of `num_experts` experts; None for a single one, which needs no routing."""
    check(num_experts >= 1, f"{kind}_experts", "at least 1", num_experts)
    requirement = f"between 1 and `{kind}_experts` ({num_experts})"
    check(1 <= top_k <= num_experts, f"{kind}_top_k", requirement, top_k)
    if num_experts == 1:
        return None
    return Router(
        side.embed_dim,
        num_experts,
        top_k,
        dropout=options.router_dropout,
        sample=options.router_sample,
    )


def _kind(router: Router | None) -> str:
    return "dense" if router is None else "mixture"


_ATTENTION: dict[str, Any] = {
    "dense": lambda options, core, router, shape: MultiheadAttention(core, **shape),
    "mixture": lambda options, core, router, shape: MixtureAttention(
        core, router, expert_backend=str(options.expert_backend), **shape
    ),
}

_FEED_FORWARD: dict[str, Any] = {
    "dense": lambda options, router, shape: FeedForward(**shape),
    "mixture": lambda options, router, shape: MixtureFeedForward(
        router, expert_backend=str(options.expert_backend), **shape
    ),
}

_POSITIONS: dict[str, Any] = {
    "none": lambda options, side: None,
    "window": lambda options, side: RelativeWindow(
        side.num_heads, side.head_dim, options.attention_window, causal=side.causal
    ),
    "buckets": lambda options, side: RelativeBuckets(
        side.num_heads,
        num_buckets=options.attention_buckets,
        max_distance=options.attention_max_distance,
        causal=side.causal,
    ),
    "transformer-xl": lambda options, side: TransformerXLPositions(
        side.embed_dim,
        side.num_heads,
        side.head_dim,
        dropout=options.attention_query_dropout,
        causal=side.causal,
    ),
    "absolute-relative": lambda options, side: AbsoluteRelativePositions(
        side.embed_dim,
        side.num_heads,
        side.head_dim,
        dropout=options.attention_query_dropout,
        causal=side.causal,
    ),
    "direction": lambda options, side: Direction(
        side.embed_dim, side.num_heads, side.head_dim, dropout=options.attention_query_dropout
    ),
}

_DISTRIBUTION: dict[str, Any] = {
    "softmax": lambda side: Softmax(),
    "geometric": lambda side: Geometric(causal=side.causal),
}


def _transformer_block(options: Any, side: _Side, parts: dict[str, Any]) -> Block:
    return TransformerBlock(pre_norm=side.pre_norm, **parts)


def _data_router_block(options: Any, side: _Side, parts: dict[str, Any]) -> Block:
    allowed = "off with a data-router block, which has its norms where they are"
    check(not side.pre_norm, f"{side.name}_normalize_before", allowed, side.pre_norm)
    dropout, update = options.copy_gate_dropout, str(options.copy_gate_update)
    check(0 <= dropout < 1, "copy_gate_dropout", "at least 0 and less than 1", dropout)
    check_choice("copy_gate_update", update, _UPDATE_NORM)
    return DataRouterBlock(
        copy_gate=CopyGate(
            side.embed_dim, dropout=dropout, hidden_dropout=options.activation_dropout
        ),
        update_norm=_UPDATE_NORM[update](side),
        **parts,
    )


_BLOCK: dict[str, Any] = {
    "transformer": _transformer_block,
    "data-router": _data_router_block,
}

_UPDATE_NORM: dict[str, Any] = {
    "layer-norm": lambda side: nn.LayerNorm(side.embed_dim),
    "tanh": lambda side: nn.Tanh(),
}

_HALTING: dict[str, Any] = {
    "none": lambda options, side: None,
    "stick-breaking": lambda options, side: StickBreakingHalting(
        side.embed_dim,
        alpha_threshold=options.alpha_threshold,
        dropout=options.dropout if options.halting_dropout is None else options.halting_dropout,
    ),
    "act": lambda options, side: GravesHalting(side.embed_dim, epsilon=options.halting_epsilon),
    "act-ut": lambda options, side: DehghaniHalting(
        side.embed_dim, epsilon=options.halting_epsilon
    ),
}
