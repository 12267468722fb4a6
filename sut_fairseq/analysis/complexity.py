"""Parameters and multiply-accumulate operations (MACs) of models, with ptflops.

Two conventions. "Paper": what the published figures count, the products with weights (projections,
experts, routers, halting units, output projection) and normalisation, but neither embedding
look-ups nor the attention products q.k and weights.v; the keys and values of cross-attention count
once for each step, as the published code computes them. "Full": what is computed here, with the
attention products (for each query all keys of the sentence, as in a dense implementation) and the
keys and values of cross-attention once, since they are the same at every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sut_fairseq.analysis.countable import check_model, not_counted
from sut_fairseq.analysis.counting import PRODUCTS, REPEATED, BatchCounter
from sut_fairseq.analysis.depth import add_halting
from sut_fairseq.analysis.traces import evaluating
from sut_fairseq.errors import InputError
from sut_fairseq.statistics import HaltingStatistics


@dataclass
class Complexity:
    """What running a model on some sentence pairs costs; MACs are sums over all of them.

    Attributes:
        params: number of parameters, tied ones once.
        sentences, source_tokens, target_tokens: how many the model was run on.
        macs: MACs in the paper convention.
        by_part: the same split into encoder, decoder, projection.
        by_kind: both conventions split by kind of work; `macs` leaves `PRODUCTS` out, `macs_full`
            leaves `REPEATED` out.
        halting: statistics of each stack that halts.
    """

    params: int
    sentences: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    macs: int = 0
    by_part: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)
    halting: dict[str, HaltingStatistics] = field(default_factory=dict)

    @property
    def macs_full(self) -> int:
        """MACs of what is actually computed, attention products included."""
        return self.macs + self.by_kind[PRODUCTS] - self.by_kind[REPEATED]


def count(
    model: nn.Module, batches: Iterable[dict[str, Tensor]], *, training: bool = False
) -> Complexity:
    """Count what the forward pass on sentence pairs costs, under teacher forcing.

    Args:
        model: an encoder-decoder model or a classifier of this package, or fairseq's Transformer
            or LSTM; its mode is kept.
        batches: each with `src_tokens` `(batch, src_len)`, `src_lengths` `(batch,)` and, but for a
            language model, `prev_output_tokens` `(batch, tgt_len)`, without padding, so that a
            sentence costs in a batch what it costs alone (`without_padding` makes such batches),
            except that keys of relative sinusoids are computed once for the whole batch.
        training: count the forward pass of training, which for some models has fewer steps.

    Raises:
        InputError: if ptflops fails, or the model has layers that no hook here knows.
    """
    check_model(model)
    result = Complexity(params=sum(p.numel() for p in model.parameters()))
    with evaluating(model):
        # fairseq's Transformer layers take a fused path that no hook sees unless they have been in
        # training mode before; ptflops switches to evaluation mode itself.
        model.train()
        for batch in batches:
            counter = BatchCounter(model, batch, training)
            macs = counter.run()
            if sum(counter.by_part.values()) != macs:
                raise not_counted(type(model))
            result.macs += macs
            result.by_part.update(counter.by_part)
            result.by_kind.update(counter.by_kind)
            add_halting(result.halting, counter.halting)
            result.sentences += batch["src_tokens"].shape[0]
            result.source_tokens += batch["src_tokens"].numel()
            if "prev_output_tokens" in batch:
                result.target_tokens += batch["prev_output_tokens"].numel()
    return result


def count_pair(model: nn.Module, source: Tensor, target: Tensor, eos: int) -> Complexity | None:
    """`count` of one sentence pair; None for a model with layers that cannot be counted.

    Args:
        model: see `count`.
        source, target: tokens, `(length,)`, both ending in `eos`.
        eos: index of the end-of-sentence symbol.
    """
    try:
        return count(model, without_padding([(source, target)], eos))
    except InputError:
        return None


def without_padding(
    pairs: list[tuple[Tensor, Tensor]], eos: int, max_tokens: int = 4096
) -> Iterator[dict[str, Tensor]]:
    """Batch sentence pairs of equal lengths, so that no batch needs padding.

    Args:
        pairs: source and target tokens of each pair, both ending in `eos`.
        eos: index of the end-of-sentence symbol, which also starts the decoder's input.
        max_tokens: greatest number of source or target tokens in a batch.
    """
    by_lengths: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
    for source, target in pairs:
        by_lengths.setdefault((len(source), len(target)), []).append((source, target))
    for lengths, group in sorted(by_lengths.items()):
        size = max(1, max_tokens // max(lengths))
        for start in range(0, len(group), size):
            sources, targets = zip(*group[start : start + size])
            target = torch.stack(targets).long()
            first = torch.full_like(target[:, :1], eos)
            yield {
                "src_tokens": torch.stack(sources).long(),
                "src_lengths": torch.full((len(sources),), lengths[0]),
                "prev_output_tokens": torch.cat([first, target[:, :-1]], dim=1),
            }
