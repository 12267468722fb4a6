"""The axes of a model, each with its kinds: options, help and errors come from these lists.

To add a kind: write its module, then a builder and a line in the list of its axis here. From
another package, `kinds.register_kind` adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from sut_fairseq.errors import check, check_choice
from sut_fairseq.models._axis import Axis, Kind, Side
from sut_fairseq.modules.attention.compositional import CompositionalAttention
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions.gaze import MovingGaze
from sut_fairseq.modules.attention.distributions.geometric import Geometric
from sut_fairseq.modules.attention.distributions.interface import Distribution
from sut_fairseq.modules.attention.distributions.others import OthersSoftmax
from sut_fairseq.modules.attention.distributions.softmax import Softmax
from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.attention.multihead import MultiheadAttention
from sut_fairseq.modules.attention.positions.absolute_relative import AbsoluteRelativePositions
from sut_fairseq.modules.attention.positions.buckets import RelativeBuckets
from sut_fairseq.modules.attention.positions.content import ContentScores
from sut_fairseq.modules.attention.positions.direction import Direction
from sut_fairseq.modules.attention.positions.interface import Scores
from sut_fairseq.modules.attention.positions.transformer_xl import TransformerXLPositions
from sut_fairseq.modules.attention.positions.window import RelativeWindow
from sut_fairseq.modules.block import Block, DataRouterBlock, TransformerBlock
from sut_fairseq.modules.copy_gate import CopyGate
from sut_fairseq.modules.feedforward import Activation, DenseFeedForward, FeedForward
from sut_fairseq.modules.halting.act import DehghaniHalting, GravesHalting
from sut_fairseq.modules.halting.fixed_depth import FixedDepth
from sut_fairseq.modules.halting.interface import Halting
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router

if TYPE_CHECKING:
    from sut_fairseq.models._config import UniversalTransformerConfig as Config


def router(config: Config, embed_dim: int, kind: str) -> Router:
    """The router of the "attention" or the "ffn" experts."""
    return Router(
        embed_dim,
        getattr(config, f"{kind}_experts"),
        getattr(config, f"{kind}_top_k"),
        dropout=config.router_dropout,
        sample=config.router_sample,
    )


# Positions: the scores of self-attention.


def _buckets(config: Config, side: Side) -> Scores:
    return RelativeBuckets(
        side.num_heads,
        num_buckets=config.attention_buckets,
        max_distance=config.attention_max_distance,
        causal=side.causal,
    )


def _sinusoidal(kind: type[TransformerXLPositions], config: Config, side: Side) -> Scores:
    return kind(
        side.embed_dim,
        side.num_heads,
        side.head_dim,
        dropout=config.attention_query_dropout,
        causal=side.causal,
    )


POSITIONS: Axis[Callable[[Config, Side], Scores]] = Axis(
    "positions in the scores of self-attention",
    {
        "none": Kind("content only", lambda config, side: ContentScores()),
        "window": Kind(
            "learned embeddings of offsets",
            lambda config, side: RelativeWindow(
                side.num_heads, side.head_dim, config.attention_window, causal=side.causal
            ),
        ),
        "buckets": Kind("biases in T5's buckets", _buckets),
        "transformer-xl": Kind("relative sinusoids", partial(_sinusoidal, TransformerXLPositions)),
        "absolute-relative": Kind(
            "each query chooses", partial(_sinusoidal, AbsoluteRelativePositions)
        ),
        "direction": Kind(
            "left or right, made for geometric attention",
            lambda config, side: Direction(
                *(side.embed_dim, side.num_heads, side.head_dim),
                dropout=config.attention_query_dropout,
            ),
        ),
    },
    Scores,
)


# Distributions: the weights of self-attention.


DISTRIBUTIONS: Axis[Callable[[Config, Side], Distribution]] = Axis(
    "weights of self-attention",
    {
        "softmax": Kind("weights of all keys sum to 1", lambda config, side: Softmax()),
        "others": Kind(
            "weights of all keys but the token's own sum to 1", lambda config, side: OthersSoftmax()
        ),
        "geometric": Kind("the closest match", lambda config, side: Geometric(causal=side.causal)),
    },
    Distribution,
)


# Cross-attention: where it looks.


def _gaze(config: Config, side: Side, mixes: bool) -> MovingGaze:
    return MovingGaze(side.head_dim, config.location_hidden_size, mixes=mixes)


CROSS_ATTENTION: Axis[Callable[[Config, Side], Distribution | MovingGaze]] = Axis(
    "where cross-attention looks",
    {
        "content": Kind("at keys that match", lambda config, side: Softmax()),
        "location": Kind(
            "by position, moving from target token to target token", partial(_gaze, mixes=False)
        ),
        "mix": Kind("by position and by content", partial(_gaze, mixes=True)),
    },
    Distribution,
    MovingGaze,
)


# Attention; `source_dim` is the size of the states attended to.
ATTENTION_BIASES = ("none", "value-scores", "all")


def _multihead(config: Config, side: Side, core: AttentionCore, source_dim: int) -> Attention:
    experts = config.attention_experts
    requirement = "1 for `attention_kind` multihead, which has no experts"
    check(experts == 1, "attention_experts", requirement, experts)
    return MultiheadAttention(
        core,
        embed_dim=side.embed_dim,
        source_dim=source_dim,
        num_heads=side.num_heads,
        head_dim=side.head_dim,
        bias=_biases(config, "multihead", ("none", "all")),
    )


def _biases(config: Config, kind: str, allowed: tuple[str, ...]) -> bool:
    """Whether all projections of attention have biases."""
    biases = str(config.attention_biases)
    check_choice("attention_biases", biases, ATTENTION_BIASES)
    requirement = f"{' or '.join(allowed)} for `attention_kind` {kind}"
    check(biases in allowed, "attention_biases", requirement, biases)
    return biases == "all"


def _mixture(config: Config, side: Side, core: AttentionCore, source_dim: int) -> Attention:
    experts = config.attention_experts
    check(experts >= 2, "attention_experts", "at least 2 for `attention_kind` mixture", experts)
    _biases(config, "mixture", ("none",))
    return MixtureAttention(
        core,
        router(config, side.embed_dim, "attention"),
        embed_dim=side.embed_dim,
        source_dim=source_dim,
        num_heads=side.num_heads,
        head_dim=side.head_dim,
        expert_backend=str(config.expert_backend),
    )


def _compositional(config: Config, side: Side, core: AttentionCore, source_dim: int) -> Attention:
    experts = config.attention_experts
    check(experts == 1, "attention_experts", "1 for `attention_kind` compositional", experts)
    num_retrievals, value_dim = config.attention_retrievals, config.attention_value_dim
    return CompositionalAttention(
        core,
        embed_dim=side.embed_dim,
        source_dim=source_dim,
        num_searches=side.num_heads,
        head_dim=side.head_dim,
        num_retrievals=side.num_heads if num_retrievals is None else num_retrievals,
        value_dim=side.head_dim if value_dim is None else value_dim,
        retrieval_dim=config.attention_retrieval_dim,
        value_matrices=str(config.attention_value_matrices),
        value_scores=str(config.attention_value_scores),
        score_bias=str(config.attention_biases) != "none",
        bias=_biases(config, "compositional", ATTENTION_BIASES),
    )


def _by_experts(config: Config, side: Side, core: AttentionCore, source_dim: int) -> Attention:
    # Neither of the kinds here has retrievals. Where a user names one of them instead, nothing is
    # refused: the options may be a compositional preset's, whose kind they replace.
    requirement = "left out without `attention_kind` compositional"
    for name in ("attention_retrievals", "attention_value_dim"):
        check(getattr(config, name) is None, name, requirement, getattr(config, name))
    build = _multihead if config.attention_experts == 1 else _mixture
    return build(config, side, core, source_dim)


ATTENTION: Axis[Callable[[Config, Side, AttentionCore, int], Attention]] = Axis(
    "kind of self- and cross-attention",
    {
        "auto": Kind("mixture with more than one expert, else multihead", _by_experts),
        "multihead": Kind("dense heads", _multihead),
        "mixture": Kind("heads of the experts that a token is routed to", _mixture),
        "compositional": Kind("searches that choose what they retrieve", _compositional),
    },
    Attention,
)


# Feed-forward layers.


def _dense(config: Config, side: Side, activation: Activation) -> FeedForward:
    requirement = "1 for `feed_forward_kind` dense, which has no experts"
    check(config.ffn_experts == 1, "ffn_experts", requirement, config.ffn_experts)
    return DenseFeedForward(
        embed_dim=side.embed_dim,
        hidden_dim=side.hidden_dim,
        activation=activation,
        activation_dropout=config.activation_dropout,
    )


def _mixture_feed_forward(config: Config, side: Side, activation: Activation) -> FeedForward:
    experts = config.ffn_experts
    check(experts >= 2, "ffn_experts", "at least 2 for `feed_forward_kind` mixture", experts)
    return MixtureFeedForward(
        router(config, side.embed_dim, "ffn"),
        embed_dim=side.embed_dim,
        hidden_dim=side.hidden_dim,
        activation=activation,
        activation_dropout=config.activation_dropout,
        expert_backend=str(config.expert_backend),
    )


def _feed_forward_by_experts(config: Config, side: Side, activation: Activation) -> FeedForward:
    build = _dense if config.ffn_experts == 1 else _mixture_feed_forward
    return build(config, side, activation)


FEED_FORWARD: Axis[Callable[[Config, Side, Activation], FeedForward]] = Axis(
    "kind of feed-forward layer",
    {
        "auto": Kind("mixture with more than one expert, else dense", _feed_forward_by_experts),
        "dense": Kind("one layer for all tokens", _dense),
        "mixture": Kind("the experts that a token is routed to", _mixture_feed_forward),
    },
    FeedForward,
)


# Halting.


def _stick_breaking(config: Config, side: Side) -> StickBreakingHalting:
    dropout = config.halting_dropout
    return StickBreakingHalting(
        side.embed_dim,
        alpha_threshold=config.alpha_threshold,
        dropout=config.dropout if dropout is None else dropout,
    )


HALTING: Axis[Callable[[Config, Side], Halting]] = Axis(
    "how tokens halt",
    {
        "none": Kind("all steps", lambda config, side: FixedDepth()),
        "stick-breaking": Kind("at a threshold, as in SUT", _stick_breaking),
        "act": Kind(
            "ACT of Graves (2016)",
            lambda config, side: GravesHalting(side.embed_dim, epsilon=config.halting_epsilon),
        ),
        "act-ut": Kind(
            "ACT as in the Universal Transformer",
            lambda config, side: DehghaniHalting(side.embed_dim, epsilon=config.halting_epsilon),
        ),
    },
    Halting,
)


# Blocks; cross-attention is None in an encoder.
UPDATE_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer-norm": nn.LayerNorm,
    "tanh": lambda embed_dim: nn.Tanh(),
}


def _transformer(
    config: Config, side: Side, own: Attention, cross: Attention | None, feed_forward: FeedForward
) -> Block:
    return TransformerBlock(
        self_attention=own,
        cross_attention=cross,
        feed_forward=feed_forward,
        embed_dim=side.embed_dim,
        dropout=config.dropout,
        pre_norm=side.pre_norm,
    )


def _data_router(
    config: Config, side: Side, own: Attention, cross: Attention | None, feed_forward: FeedForward
) -> Block:
    allowed = "off with a data-router block, which has its norms where they are"
    check(not side.pre_norm, f"{side.name}_normalize_before", allowed, side.pre_norm)
    update = str(config.copy_gate_update)
    check_choice("copy_gate_update", update, UPDATE_NORMS)
    return DataRouterBlock(
        self_attention=own,
        cross_attention=cross,
        feed_forward=feed_forward,
        copy_gate=CopyGate(
            side.embed_dim,
            dropout=config.copy_gate_dropout,
            hidden_dropout=config.activation_dropout,
        ),
        update_norm=UPDATE_NORMS[update](side.embed_dim),
        embed_dim=side.embed_dim,
        dropout=config.dropout,
    )


BLOCKS: Axis[Callable[[Config, Side, Attention, Attention | None, FeedForward], Block]] = Axis(
    "kind of block",
    {
        "transformer": Kind("residual sublayers", _transformer),
        "data-router": Kind("copies or updates states (Neural Data Router)", _data_router),
    },
    Block,
)
