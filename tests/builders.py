"""Small modules of the numeric core, described by the options that the references take too."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.attention.compositional import CompositionalAttention
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.attention.distributions.geometric import Geometric
from sut_fairseq.modules.attention.distributions.others import OthersSoftmax
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.attention.mixture import MixtureAttention
from sut_fairseq.modules.attention.multihead import MultiheadAttention
from sut_fairseq.modules.attention.positions.absolute_relative import AbsoluteRelativePositions
from sut_fairseq.modules.attention.positions.buckets import RelativeBuckets
from sut_fairseq.modules.attention.positions.direction import Direction
from sut_fairseq.modules.attention.positions.transformer_xl import TransformerXLPositions
from sut_fairseq.modules.attention.positions.window import RelativeWindow
from sut_fairseq.modules.block import Block, DataRouterBlock, TransformerBlock
from sut_fairseq.modules.copy_gate import CopyGate
from sut_fairseq.modules.feedforward import Activation, DenseFeedForward
from sut_fairseq.modules.halting.act import DehghaniHalting, GravesHalting
from sut_fairseq.modules.halting.stick_breaking import StickBreakingHalting
from sut_fairseq.modules.routing.feedforward import MixtureFeedForward
from sut_fairseq.modules.routing.router import Router
from sut_fairseq.modules.stack import Stack
from tests.comparison import randomise
from tests.references import Options

EMBED_DIM, SOURCE_DIM, HEAD_DIM, HIDDEN_DIM = 6, 5, 3, 4
ACT = {"graves": GravesHalting, "dehghani": DehghaniHalting}


def build_feed_forward(
    options: Options, num_experts: int, activation: Activation = F.gelu
) -> nn.Module:
    """Dense for one expert, like the package's own assembly."""
    sizes = dict(embed_dim=EMBED_DIM, hidden_dim=HIDDEN_DIM, activation=activation)
    if num_experts == 1:
        return DenseFeedForward(**sizes)
    router = Router(EMBED_DIM, num_experts, options.ffn_top_k)
    return MixtureFeedForward(router, **sizes)


def build_attention(
    options: Options,
    num_experts: int,
    *,
    window: int = 1,
    num_buckets: int = 4,
    source_dim: int = EMBED_DIM,
    value_scores: str = "dot-product",
    value_dim: int = HEAD_DIM,
    score_bias: bool = False,
    bias: bool = False,
) -> nn.Module:
    """Dense for one expert, like the package's own assembly."""
    positions = {
        "none": lambda: None,
        "window": lambda: RelativeWindow(
            options.num_heads, HEAD_DIM, window, causal=options.causal
        ),
        "buckets": lambda: RelativeBuckets(
            options.num_heads,
            num_buckets=num_buckets,
            max_distance=options.max_distance,
            causal=options.causal,
        ),
        "direction": lambda: Direction(EMBED_DIM, options.num_heads, HEAD_DIM),
        "transformer-xl": lambda: TransformerXLPositions(
            EMBED_DIM, options.num_heads, HEAD_DIM, causal=options.causal
        ),
        "absolute-relative": lambda: AbsoluteRelativePositions(
            EMBED_DIM, options.num_heads, HEAD_DIM, causal=options.causal
        ),
    }
    distributions = {
        "softmax": lambda: None,
        "others": OthersSoftmax,
        "geometric": lambda: Geometric(causal=options.causal),
    }
    matrices = "own" if options.own_values else "shared"
    several = options.num_retrievals
    core = AttentionCore(
        positions=positions[options.positions](),
        distribution=distributions[options.distribution](),
        causal=options.causal,
    )
    sizes = dict(
        embed_dim=EMBED_DIM,
        source_dim=source_dim,
        num_heads=options.num_heads,
        head_dim=HEAD_DIM,
    )
    if several is not None:
        return CompositionalAttention(
            core,
            embed_dim=EMBED_DIM,
            source_dim=source_dim,
            num_searches=options.num_heads,
            head_dim=HEAD_DIM,
            num_retrievals=several,
            value_dim=value_dim,
            retrieval_dim=2,
            value_matrices=matrices,
            value_scores=value_scores,
            score_bias=score_bias,
            bias=bias,
        )
    if num_experts == 1:
        return MultiheadAttention(core, **sizes, bias=bias)
    router = Router(EMBED_DIM, num_experts, options.attention_top_k)
    return MixtureAttention(core, router, **sizes)


def build_stack(
    options: Options,
    num_experts: int,
    *,
    cross: bool = False,
    checkpoint: bool = False,
    layout: str = "auto",
    seed: int = 1,
) -> Stack:
    """A stack in float64 with random weights, those of the halting unit included."""
    parts = dict(
        self_attention=build_attention(options, num_experts),
        cross_attention=(
            build_attention(options.across, num_experts, source_dim=SOURCE_DIM) if cross else None
        ),
        feed_forward=build_feed_forward(options, num_experts),
        embed_dim=EMBED_DIM,
    )
    if options.block == "transformer":
        block: Block = TransformerBlock(pre_norm=options.pre_norm, **parts)
    else:
        tanh = options.block == "data-router-tanh"
        update_norm = nn.Tanh() if tanh else nn.LayerNorm(EMBED_DIM)
        block = DataRouterBlock(copy_gate=CopyGate(EMBED_DIM), update_norm=update_norm, **parts)
    halting: nn.Module | None = None
    if options.alpha_threshold is not None:
        halting = StickBreakingHalting(EMBED_DIM, alpha_threshold=options.alpha_threshold)
    if options.act is not None:
        halting = ACT[options.act](EMBED_DIM, epsilon=options.epsilon)
    stack = Stack(
        block,
        options.num_steps,
        halting=halting,
        final_norm=nn.LayerNorm(EMBED_DIM) if options.pre_norm else None,
        checkpoint_activations=checkpoint,
        layout=layout,
    ).double()
    randomise(stack, seed)
    if stack.halting.halts:
        stack.halting.output.weight.data *= 1.5  # so that tokens differ in when they halt
    return stack


def memory_of(attention: nn.Module, states: Tensor, padding_mask: Tensor | None) -> Memory:
    """Keys and values of all columns of `(batch, length, dim)`, those at padding included."""
    batch, length = states.shape[:2]
    keys, values = (
        flat.unflatten(0, (batch, length)).transpose(1, 2)
        for flat in attention.keys_values(states.flatten(0, 1))
    )
    return Memory(keys, values, padding_mask)
