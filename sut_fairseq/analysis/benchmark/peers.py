"""Models of this package with their loss, and the models they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import nn

from sut_fairseq.analysis.complexity import count
from sut_fairseq.analysis.untrained import build, random_batch
from sut_fairseq.criterions.cross_entropy_with_auxiliary import CrossEntropyWithAuxiliaryCriterion
from sut_fairseq.errors import InputError, check
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models._given import complete
from sut_fairseq.models.architectures import ARCHITECTURES
from sut_fairseq.models.universal_transformer import UniversalTransformerModel

COMMAND = "sut-benchmark"

_LABEL_SMOOTHING = 0.1
TOLERANCE = 0.01  # relative difference of MACs that count as equal


def own_model(
    arch: str, vocab_size: int, flags: Sequence[str] = ()
) -> tuple[UniversalTransformerModel, SimpleNamespace]:
    """An untrained model of this package, in which nothing halts; see `untrained.build`.

    Raises:
        InputError: if the architecture is not one of this package.
    """
    model, task = build(arch, vocab_size, flags, command=COMMAND)
    own = isinstance(model, UniversalTransformerModel)
    check(own, "--arch", "an encoder-decoder of this package (e.g. sut_base, ut_base)", arch)
    return model, task


def options_of(arch: str | None) -> UniversalTransformerConfig | None:
    """Options of a named architecture of this package, to take the sizes of a layer from.

    Raises:
        InputError: if there is no such architecture, or it has no mixture of experts.
    """
    if arch is None:
        return None
    mixtures = [name for name, own in ARCHITECTURES.items() if own.get("ffn_experts", 1) > 1]
    check(arch in mixtures, "--arch", f"one of {', '.join(mixtures)}", arch)
    return complete(UniversalTransformerConfig, SimpleNamespace(**ARCHITECTURES[arch]))


def own_criterion(task: Any, cuda_graphs: int = 0) -> nn.Module:
    """The loss of our models, with two auxiliary terms at weights greater than 0."""
    return CrossEntropyWithAuxiliaryCriterion(
        task,
        sentence_avg=False,
        label_smoothing=_LABEL_SMOOTHING,
        weights={"mutual_information": 0.01, "expected_depth": 0.01},
        cuda_graphs=cuda_graphs,
    )


def plain_criterion(task: Any) -> nn.Module:
    """The loss of fairseq's Transformer."""
    return LabelSmoothedCrossEntropyCriterion(
        task, sentence_avg=False, label_smoothing=_LABEL_SMOOTHING
    )


def roundest(exact: float, tolerance: float) -> int | None:
    """The roundest positive number that is close enough, because hardware prefers round sizes."""
    multiples = (64, 32, 16, 8, 4, 2, 1)
    sizes = (multiple * max(1, round(exact / multiple)) for multiple in multiples)
    return next((size for size in sizes if abs(size - exact) <= tolerance), None)


def macs_of_pair(model: nn.Module, task: Any, *, src_len: int, tgt_len: int) -> int:
    """MACs of a forward pass for one pair of sentences, attention products included."""
    batch = random_batch(model, task, src_len=src_len, tgt_len=tgt_len)
    return count(model, [batch]).macs_full


def equal_transformer(
    model: UniversalTransformerModel,
    task: Any,
    *,
    src_len: int,
    tgt_len: int,
    heads: int | None = None,
) -> tuple[nn.Module, int]:
    """fairseq's Transformer of a model's width, depth and dropout with as many MACs.

    It is `transformer_wmt_en_de` with one embedding for everything and the hidden size of its
    feed-forward layers chosen so that MACs at these lengths agree within 1 %.

    Args:
        model: a model of this package, on the CPU.
        task: with its dictionaries.
        src_len, tgt_len: numbers of tokens of the sentence pair that is counted.
        heads: number of its heads; None: as many as give 64 dimensions each, or one.

    Returns:
        the Transformer, and its hidden size.

    Raises:
        InputError: if the Transformer has more MACs even with the least hidden size, or if the
            heads do not divide the width.
    """
    embed_dim = model.encoder.embedding.tokens.embedding_dim
    if heads is None:
        heads = embed_dim // 64 if embed_dim % 64 == 0 else 1
    requirement = f"a divisor of the width, {embed_dim}"
    check(embed_dim % heads == 0, "--transformer-heads", requirement, heads)
    lengths = dict(src_len=src_len, tgt_len=tgt_len)
    vocab_size = len(task.target_dictionary)
    wanted = macs_of_pair(model, task, **lengths)

    def transformer(hidden_dim: int) -> nn.Module:
        flags = _flags(model, hidden_dim, heads)
        return build("transformer_wmt_en_de", vocab_size, flags, command=COMMAND)[0]

    # MACs are linear in the hidden size.
    few, many = (macs_of_pair(transformer(size), task, **lengths) for size in (64, 128))
    slope = (many - few) / 64
    exact = 64 + (wanted - few) / slope
    hidden_dim = roundest(exact, TOLERANCE * wanted / slope)
    if hidden_dim is None:
        raise InputError(
            f"`--arch` must have at least the {few - 63 * slope:,.0f} MACs that a Transformer of "
            f"its width and depth has for a sentence pair, but has {wanted:,} instead."
        )
    return transformer(hidden_dim), hidden_dim


def _flags(model: UniversalTransformerModel, hidden_dim: int, heads: int) -> list[str]:
    """Flags of the Transformer that resembles a model."""
    block = model.encoder.stack.block
    embed_dim = model.encoder.embedding.tokens.embedding_dim
    values = {
        "encoder-embed-dim": embed_dim,
        "encoder-ffn-embed-dim": hidden_dim,
        "encoder-attention-heads": heads,
        "encoder-layers": model.encoder.stack.num_steps,
        "decoder-embed-dim": embed_dim,
        "decoder-ffn-embed-dim": hidden_dim,
        "decoder-attention-heads": heads,
        "decoder-layers": model.decoder.stack.num_steps,
        "dropout": block.dropout.p,
        "attention-dropout": block.self_attention.core.dropout.p,
        "activation-dropout": block.feed_forward.activation_dropout.p,
    }
    flags = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return [*flags, "--share-all-embeddings"]
