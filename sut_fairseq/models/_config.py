"""Options of the models: flat groups, combined by inheritance.

Flat because nested groups with equal field names collide in fairseq's command line, and because
`--model-overrides` changes a key wherever it occurs.
"""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from dataclasses import dataclass, field
from typing import Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from sut_fairseq.models import _kinds
from sut_fairseq.modules.attention.compositional import VALUE_MATRICES, VALUE_SCORES
from sut_fairseq.modules.routing.experts import BACKENDS
from sut_fairseq.modules.tokens import LAYOUTS

# fairseq knows `Optional[int]` but not `int | None`.
# ruff: noqa: UP007, UP045

_TOP_1 = (
    "with 1 an expert's weight is always 1, and routers learn from nothing but auxiliary losses, "
    "and not from the load variation"
)


@dataclass
class TokenOptions(FairseqDataclass):
    """Token embeddings of a translation model, and its maximum lengths."""

    encoder_embed_dim: int = field(default=512, metadata={"help": "size of a source token's state"})
    decoder_embed_dim: Optional[int] = field(
        default=None, metadata={"help": "size of a target token's state (default: the encoder's)"}
    )
    share_all_embeddings: bool = field(
        default=False,
        metadata={
            "help": "one embedding for source, target and output projection (joined dictionary)"
        },
    )
    separate_embeddings: bool = field(
        default=False,
        metadata={
            "help": "share no embeddings, whatever the architecture or other options set (two "
            "dictionaries)"
        },
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "one embedding for target and output projection"}
    )
    max_source_positions: int = field(
        default=1024, metadata={"help": "longest source sentence, in tokens"}
    )
    max_target_positions: int = field(
        default=1024, metadata={"help": "longest target sentence, in tokens"}
    )


@dataclass
class EmbeddingOptions(TokenOptions):
    """Token and position embeddings."""

    no_token_positional_embeddings: bool = field(
        default=False,
        metadata={"help": "no absolute positions, only relative ones (length generalisation)"},
    )


@dataclass
class DepthOptions(FairseqDataclass):
    """The depth loop and its block."""

    encoder_block: str = field(
        default="transformer", metadata={"help": f"{_kinds.BLOCKS.help} (encoder)"}
    )
    decoder_block: str = field(default="transformer", metadata={"help": "the same for the decoder"})
    copy_gate_update: ChoiceEnum(list(_kinds.UPDATE_NORMS)) = field(  # type: ignore[valid-type]
        default="layer-norm",
        metadata={"help": "what bounds a data router's update (tanh: for softmax attention)"},
    )
    copy_gate_dropout: float = field(
        default=0.0, metadata={"help": "share of a data router's gates closed in training"}
    )
    encoder_layers: int = field(
        default=6, metadata={"help": "number of encoder steps; can be changed after training"}
    )
    decoder_layers: int = field(
        default=6, metadata={"help": "number of decoder steps; can be changed after training"}
    )
    encoder_normalize_before: bool = field(
        default=False, metadata={"help": "layer norm before each encoder sublayer, not after"}
    )
    decoder_normalize_before: bool = field(
        default=False, metadata={"help": "layer norm before each decoder sublayer, not after"}
    )
    dropout: float = field(default=0.1, metadata={"help": "dropout of embeddings and sublayers"})
    token_layout: ChoiceEnum(list(LAYOUTS)) = field(  # type: ignore[valid-type]
        default="auto",
        metadata={
            "help": "how padded and halted tokens are skipped: compact drops them, masked keeps "
            "all shapes constant (for torch.compile); all give the same result"
        },
    )
    checkpoint_activations: bool = field(
        default=False,
        metadata={"help": "recompute each step in the backward pass: less memory, more time"},
    )


@dataclass
class AttentionOptions(FairseqDataclass):
    """Self- and cross-attention."""

    encoder_attention_heads: int = field(
        default=8, metadata={"help": "heads of the encoder's attention (of each expert)"}
    )
    decoder_attention_heads: Optional[int] = field(
        default=None,
        metadata={"help": "heads of the decoder's attention, of each expert (default: encoder's)"},
    )
    attention_head_dim: Optional[int] = field(
        default=None, metadata={"help": "size of a head (default: embedding size / heads)"}
    )
    attention_experts: int = field(
        default=1, metadata={"help": "attention experts; 1 is dense attention without a router"}
    )
    attention_top_k: int = field(
        default=1, metadata={"help": f"attention experts that each token uses; {_TOP_1}"}
    )
    attention_kind: str = field(default="auto", metadata={"help": _kinds.ATTENTION.help})
    attention_retrievals: Optional[int] = field(
        default=None,
        metadata={"help": "values that searches choose from (compositional; default: the heads)"},
    )
    attention_retrieval_dim: int = field(
        default=32, metadata={"help": "size of retrieval queries and keys (compositional)"}
    )
    attention_value_scores: ChoiceEnum(list(VALUE_SCORES)) = field(  # type: ignore[valid-type]
        default="dot-product",
        metadata={"help": "how searches score what they retrieve (compositional)"},
    )
    attention_value_matrices: ChoiceEnum(list(VALUE_MATRICES)) = field(  # type: ignore[valid-type]
        default="shared",
        metadata={
            "help": "whether all searches retrieve with the same matrices (the paper's equations) "
            "or each with as many of its own (compositional)"
        },
    )
    attention_value_dim: Optional[int] = field(
        default=None, metadata={"help": "size of a value (compositional; default: that of a head)"}
    )
    attention_biases: ChoiceEnum(list(_kinds.ATTENTION_BIASES)) = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "which projections of attention have biases: none; value-scores, those of "
            "retrieval queries (compositional); all (multihead, compositional)"
        },
    )
    attention_distribution: str = field(
        default="softmax", metadata={"help": _kinds.DISTRIBUTIONS.help}
    )
    attention_positions: str = field(default="window", metadata={"help": _kinds.POSITIONS.help})
    cross_attention: str = field(default="content", metadata={"help": _kinds.CROSS_ATTENTION.help})
    location_hidden_size: int = field(
        default=64,
        metadata={"help": "state of the GRU that moves cross-attention (location, mix)"},
    )
    attention_query_dropout: float = field(
        default=0.0,
        metadata={"help": "dropout of queries (transformer-xl, absolute-relative, direction)"},
    )
    attention_window: int = field(
        default=64,
        metadata={"help": "largest relative offset that is distinguished, in tokens (window)"},
    )
    attention_buckets: int = field(default=32, metadata={"help": "number of buckets (buckets)"})
    attention_max_distance: int = field(
        default=128, metadata={"help": "distance from which all offsets share a bucket (buckets)"}
    )
    attention_dropout: float = field(default=0.0, metadata={"help": "dropout of attention weights"})


@dataclass
class FeedForwardOptions(FairseqDataclass):
    """The feed-forward layer."""

    encoder_ffn_embed_dim: int = field(
        default=2048, metadata={"help": "hidden size of the encoder's feed-forward (each expert's)"}
    )
    decoder_ffn_embed_dim: Optional[int] = field(
        default=None,
        metadata={"help": "hidden size of the decoder's feed-forward (default: the encoder's)"},
    )
    ffn_experts: int = field(
        default=1, metadata={"help": "feed-forward experts; 1 is a dense layer without a router"}
    )
    ffn_top_k: int = field(
        default=1, metadata={"help": f"feed-forward experts that each token uses; {_TOP_1}"}
    )
    feed_forward_kind: str = field(default="auto", metadata={"help": _kinds.FEED_FORWARD.help})
    activation_fn: ChoiceEnum(utils.get_available_activation_fns()) = field(  # type: ignore[valid-type]
        default="gelu", metadata={"help": "activation of the feed-forward layer"}
    )
    activation_dropout: float = field(
        default=0.0,
        metadata={"help": "dropout after the activation of feed-forward layers and copy gates"},
    )


@dataclass
class RouterOptions(FairseqDataclass):
    """Routers and experts."""

    router_dropout: float = field(default=0.0, metadata={"help": "dropout inside the router"})
    router_sample: bool = field(
        default=False,
        metadata={"help": "draw the experts of a token in training instead of taking the best"},
    )
    expert_backend: ChoiceEnum(list(BACKENDS)) = field(  # type: ignore[valid-type]
        default="auto", metadata={"help": "how experts are computed; all give the same result"}
    )


@dataclass
class HaltingOptions(FairseqDataclass):
    """Dynamic halting."""

    encoder_halting: str = field(
        default="none", metadata={"help": f"{_kinds.HALTING.help} (encoder)"}
    )
    decoder_halting: str = field(default="none", metadata={"help": "the same for the decoder"})
    alpha_threshold: float = field(
        default=0.999,
        metadata={"help": "probability of having halted at which a token stops, in (0, 1]"},
    )
    halting_epsilon: float = field(
        default=0.01,
        metadata={"help": "ACT halts a token once its halting probability reaches 1 minus this"},
    )
    halting_dropout: Optional[float] = field(
        default=None,
        metadata={"help": "dropout inside the stick-breaking unit (default: --dropout)"},
    )


@dataclass
class UniversalTransformerConfig(
    HaltingOptions,
    RouterOptions,
    FeedForwardOptions,
    AttentionOptions,
    DepthOptions,
    EmbeddingOptions,
):
    """Options of the (Sparse) Universal Transformer."""
