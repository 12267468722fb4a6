"""From options to the modules of a stack."""

from __future__ import annotations

from typing import Any, Literal

from fairseq import utils
from torch import nn

from sut_fairseq.errors import check, check_choice
from sut_fairseq.models._axis import Side
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models._kinds import (
    ATTENTION,
    BLOCKS,
    DISTRIBUTIONS,
    FEED_FORWARD,
    HALTING,
    POSITIONS,
)
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.modules.stack import Stack

Name = Literal["encoder", "decoder"]


def build_stack(config: UniversalTransformerConfig, name: Name) -> Stack:
    """Build the encoder's or the decoder's stack.

    Args:
        config: the model's options.
        name: which stack; the decoder's is causal and has cross-attention.

    Raises:
        InputError: if an option has a value that is not allowed.
    """
    side = _side(config, name)
    _check_halting(config, side)
    build_halting = HALTING.builder(f"{name}_halting", side.halting)
    build_attention = ATTENTION.builder("attention_kind", config.attention_kind)
    build_block = BLOCKS.builder(f"{name}_block", side.block)
    _check_experts("attention", config.attention_experts, config.attention_top_k)
    _check_experts("ffn", config.ffn_experts, config.ffn_top_k)
    own = build_attention(config, side, _self_attention_core(config, side), side.embed_dim)
    cross = None
    if name == "decoder":
        core = AttentionCore(dropout=config.attention_dropout)
        cross = build_attention(config, side, core, side.source_dim)
    block = build_block(config, side, own, cross, _feed_forward(config, side))
    return Stack(
        block,
        side.num_steps,
        halting=build_halting(config, side),
        final_norm=nn.LayerNorm(side.embed_dim) if side.pre_norm else None,
        checkpoint_activations=config.checkpoint_activations,
        layout=str(config.token_layout),
    )


def decoder_embed_dim(config: UniversalTransformerConfig) -> int:
    """Size of a target token's state."""
    return _side(config, "decoder").embed_dim


def _side(config: UniversalTransformerConfig, name: Name) -> Side:
    def own_or_encoder(option: str) -> Any:
        value = getattr(config, f"{name}_{option}")
        return getattr(config, f"encoder_{option}") if value is None else value

    embed_dim = own_or_encoder("embed_dim")
    num_heads = own_or_encoder("attention_heads")
    check(num_heads >= 1, f"{name}_attention_heads", "at least 1", num_heads)
    head_dim = config.attention_head_dim
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
    return Side(
        name=name,
        embed_dim=embed_dim,
        source_dim=config.encoder_embed_dim,
        num_steps=getattr(config, f"{name}_layers"),
        num_heads=num_heads,
        head_dim=head_dim,
        hidden_dim=own_or_encoder("ffn_embed_dim"),
        block=str(getattr(config, f"{name}_block")),
        pre_norm=getattr(config, f"{name}_normalize_before"),
        halting=str(getattr(config, f"{name}_halting")),
    )


def _check_halting(config: UniversalTransformerConfig, side: Side) -> None:
    # Checked here as well as where it is used: with both stacks' halting off nothing would see it.
    threshold, epsilon = config.alpha_threshold, config.halting_epsilon
    _check_number("alpha_threshold", "a number", threshold, (int, float))
    check(0 < threshold <= 1, "alpha_threshold", "greater than 0, at most 1", threshold)
    _check_number("halting_epsilon", "a number", epsilon, (int, float))
    check(0 < epsilon < 1, "halting_epsilon", "greater than 0, less than 1", epsilon)
    _check_number(f"{side.name}_layers", "a whole number", side.num_steps, (int,))
    check(side.num_steps >= 1, f"{side.name}_layers", "at least 1", side.num_steps)


def _check_number(name: str, kind: str, value: object, types: tuple[type, ...]) -> None:
    """Refuse what only `--model-overrides` can give, where fairseq checks no types: '0.8', True."""
    check(isinstance(value, types) and not isinstance(value, bool), name, kind, repr(value))


def _check_experts(kind: str, num_experts: int, top_k: int) -> None:
    check(num_experts >= 1, f"{kind}_experts", "at least 1", num_experts)
    requirement = f"between 1 and `{kind}_experts` ({num_experts})"
    check(1 <= top_k <= num_experts, f"{kind}_top_k", requirement, top_k)


def _self_attention_core(config: UniversalTransformerConfig, side: Side) -> AttentionCore:
    build_scores = POSITIONS.builder("attention_positions", config.attention_positions)
    build_weights = DISTRIBUTIONS.builder("attention_distribution", config.attention_distribution)
    query_dropout = config.attention_query_dropout
    check(0 <= query_dropout <= 1, "attention_query_dropout", "in [0, 1]", query_dropout)
    return AttentionCore(
        positions=build_scores(config, side),
        distribution=build_weights(config, side),
        dropout=config.attention_dropout,
        causal=side.causal,
    )


def _feed_forward(config: UniversalTransformerConfig, side: Side) -> FeedForward:
    activation = str(config.activation_fn)
    check_choice("activation_fn", activation, utils.get_available_activation_fns())
    check(side.hidden_dim >= 1, f"{side.name}_ffn_embed_dim", "at least 1", side.hidden_dim)
    kind = "dense" if config.ffn_experts == 1 else "mixture"
    build = FEED_FORWARD.builder("feed_forward", kind)
    return build(config, side, utils.get_activation_fn(activation))
