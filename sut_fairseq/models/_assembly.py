"""Builds the modules of a stack from options."""

from __future__ import annotations

from typing import Any, Literal

from fairseq import utils
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.multilingual_language_modeling import MultilingualLanguageModelingTask
from fairseq.tasks.translation_lev import TranslationLevenshteinTask
from torch import nn

from sut_fairseq.errors import InputError, check, check_choice
from sut_fairseq.models._axis import Side
from sut_fairseq.models._config import AttentionOptions, TokenOptions, UniversalTransformerConfig
from sut_fairseq.models._kinds import (
    ATTENTION,
    BLOCKS,
    CROSS_ATTENTION,
    DISTRIBUTIONS,
    FEED_FORWARD,
    HALTING,
    POSITIONS,
)
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions.gaze import MovingGaze
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.feedforward import FeedForward
from sut_fairseq.modules.stack import Stack

Name = Literal["encoder", "decoder"]


def check_translates(task: FairseqTask) -> None:
    """Refuse a task whose models are no encoder-decoders that predict one token after another.

    Raises:
        InputError: for language modelling, masked language modelling, and editing.
    """
    if isinstance(task, (LanguageModelingTask, MultilingualLanguageModelingTask)):
        raise InputError(
            "--task language_modeling needs a language model: take --arch ut_lm or another "
            "universal_transformer_lm, or a task with sources, such as translation."
        )
    if isinstance(task, (MaskedLMTask, TranslationLevenshteinTask)):
        raise InputError(
            "this model predicts one target token after another: take a task that does, such as "
            f"translation, not {type(task).__name__}."
        )


def build_stack(
    config: UniversalTransformerConfig, name: Name, *, reads_encoder: bool = True
) -> Stack:
    """Build the encoder's or the decoder's stack.

    Args:
        config: the model's options.
        name: which stack; the decoder's is causal.
        reads_encoder: whether the decoder's has cross-attention.

    Raises:
        InputError: if an option has a value that is not allowed.
    """
    side = _side(config, name, reads_encoder)
    check(side.num_steps >= 1, f"{name}_layers", "at least 1", side.num_steps)
    build_halting = HALTING.builder(f"{name}_halting", side.halting)
    build_block = BLOCKS.builder(f"{name}_block", side.block)
    _check_experts("ffn", config.ffn_experts, config.ffn_top_k)
    own = build_self_attention(config, side)
    cross = None
    if name == "decoder" and not reads_encoder:
        check_looks_nowhere(config)
    elif name == "decoder":
        build_attention = ATTENTION.builder("attention_kind", config.attention_kind)
        core = _cross_attention_core(config, side)
        cross = build_attention(config, side, core, side.source_dim)
    block = build_block(config, side, own, cross, _feed_forward(config, side))
    halting = build_halting(config, side)
    if side.num_steps == 1 and not halting.predicts_first_step:
        # The unit is never used; data-parallel training would wait for its gradients.
        halting.requires_grad_(False)
    return Stack(
        block,
        side.num_steps,
        halting=halting,
        final_norm=nn.LayerNorm(side.embed_dim) if side.pre_norm else None,
        checkpoint_activations=config.checkpoint_activations,
        layout=str(config.token_layout),
    )


def check_looks_nowhere(config: AttentionOptions) -> None:
    """Refuse a kind of cross-attention for a model that has none.

    Raises:
        InputError: naming the option.
    """
    kind = str(config.cross_attention)
    check(kind == "content", "cross_attention", "left out: this model has none", kind)


def build_self_attention(config: UniversalTransformerConfig, side: Side) -> Attention:
    """Build the kind of self-attention that the options name.

    Raises:
        InputError: if an option has a value that is not allowed.
    """
    build_attention = ATTENTION.builder("attention_kind", config.attention_kind)
    _check_experts("attention", config.attention_experts, config.attention_top_k)
    return build_attention(config, side, _self_attention_core(config, side), side.embed_dim)


def decoder_embed_dim(config: TokenOptions) -> int:
    """Size of a target token's state."""
    size: int = _own_or_encoder(config, "decoder", "embed_dim")
    return size


def _own_or_encoder(config: TokenOptions, name: Name, option: str) -> Any:
    value = getattr(config, f"{name}_{option}")
    return getattr(config, f"encoder_{option}") if value is None else value


def _side(config: UniversalTransformerConfig, name: Name, reads_encoder: bool) -> Side:
    embed_dim = _own_or_encoder(config, name, "embed_dim")
    num_heads = _own_or_encoder(config, name, "attention_heads")
    return Side(
        name=name,
        embed_dim=embed_dim,
        source_dim=config.encoder_embed_dim if reads_encoder else embed_dim,
        num_steps=getattr(config, f"{name}_layers"),
        num_heads=num_heads,
        head_dim=head_dim(config.attention_head_dim, embed_dim, num_heads, name),
        hidden_dim=_own_or_encoder(config, name, "ffn_embed_dim"),
        block=str(getattr(config, f"{name}_block")),
        pre_norm=getattr(config, f"{name}_normalize_before"),
        halting=str(getattr(config, f"{name}_halting")),
    )


def head_dim(given: int | None, embed_dim: int, num_heads: int, name: Name) -> int:
    """Size of a head: the given one, or the size of a state divided by the number of heads.

    Raises:
        InputError: naming the options of the stack `name`, if the heads do not fit into the state.
    """
    check(num_heads >= 1, f"{name}_attention_heads", "at least 1", num_heads)
    if given is None:
        requirement = f"a multiple of `{name}_attention_heads` ({num_heads}) unless "
        requirement += "`attention_head_dim` is given"
        check(embed_dim % num_heads == 0, f"{name}_embed_dim", requirement, embed_dim)
        return embed_dim // num_heads
    check(given >= 1, "attention_head_dim", "at least 1", given)
    return given


def _check_experts(kind: str, num_experts: int, top_k: int) -> None:
    check(num_experts >= 1, f"{kind}_experts", "at least 1", num_experts)
    requirement = f"between 1 and `{kind}_experts` ({num_experts})"
    check(1 <= top_k <= num_experts, f"{kind}_top_k", requirement, top_k)


def _self_attention_core(config: UniversalTransformerConfig, side: Side) -> AttentionCore:
    build_scores = POSITIONS.builder("attention_positions", config.attention_positions)
    build_weights = DISTRIBUTIONS.builder("attention_distribution", config.attention_distribution)
    return AttentionCore(
        positions=build_scores(config, side),
        distribution=build_weights(config, side),
        dropout=config.attention_dropout,
        causal=side.causal,
    )


def _cross_attention_core(config: UniversalTransformerConfig, side: Side) -> AttentionCore:
    kind = str(config.cross_attention)
    weights = CROSS_ATTENTION.builder("cross_attention", kind)(config, side)
    if config.attention_experts > 1 or config.attention_kind == "mixture":
        # In a mixture each token has different heads: there is no gaze to follow.
        allowed = "content with a mixture of attention experts, whose heads change by token"
        check(not isinstance(weights, MovingGaze), "cross_attention", allowed, kind)
    return AttentionCore(distribution=weights, dropout=config.attention_dropout)


def _feed_forward(config: UniversalTransformerConfig, side: Side) -> FeedForward:
    activation = str(config.activation_fn)
    check_choice("activation_fn", activation, utils.get_available_activation_fns())
    build = FEED_FORWARD.builder("feed_forward_kind", config.feed_forward_kind)
    return build(config, side, utils.get_activation_fn(activation))
