"""Parameters and multiply-accumulate operations (MACs) of models, with ptflops.

Two conventions. "Paper": what the published figures count, the products with weights (projections,
experts, routers, halting units, output projection) and normalisation, but neither embedding
look-ups nor the attention products q.k and weights.v; the keys and values of cross-attention count
once for each step, as the published code computes them. "Full": what is computed here, with the
attention products (all keys of the sentence for each query, as a dense implementation does it) and
the keys and values of cross-attention once, since they are the same at every step.

ptflops drives the count and supplies the rule of each ordinary layer. It sees no matrix products
outside of `nn.Linear`, so the experts, the attention core and fairseq's attention get hooks here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.models.lstm import AttentionLayer, LSTMDecoder
from fairseq.modules import MultiheadAttention as FairseqAttention
from ptflops import get_model_complexity_info
from ptflops.pytorch_ops import MODULES_MAPPING
from torch import Tensor, nn

from sut_fairseq.analysis.countable import check_model
from sut_fairseq.errors import InputError
from sut_fairseq.modules.attention.compositional import ValueScores
from sut_fairseq.modules.attention.core import AttentionCore
from sut_fairseq.modules.recurrent.gru import AttendAfter, AttendBefore, GRUDecoder
from sut_fairseq.modules.routing.experts import ExpertInput, ExpertOutput
from sut_fairseq.statistics import HaltingStatistics

PRODUCTS = "attention products"
REPEATED = "cross keys and values, repeated"

# A part of a module's name tells what its work is for; the first match counts.
_KINDS = {
    "attender": "attention projections",
    "reader.gru": "recurrent layers",
    "writer.gru": "recurrent layers",
    "writer.cell": "recurrent layers",
    "reader.layers": "recurrent layers",
    "encoder.lstm": "recurrent layers",
    "router": "routers",
    "halting": "halting",
    "norm": "normalisation",
    "copy_gate": "copy gates",
    "positions": "position scores",
    "output_projection": "output projection",
    "fc_out": "output projection",
    "attention": "attention projections",
    "attn": "attention projections",
    "feed_forward": "feed-forward",
    "fc1": "feed-forward",
    "fc2": "feed-forward",
    "decoder.layers": "recurrent layers",  # what is left of them are fairseq's LSTM cells
}
_PROJECTIONS = ("output_projection", "fc_out")


# Modules that have hooks, and parts with hooks of their own.
_WITH_OTHERS_INSIDE = (AttentionCore, ValueScores, GRUDecoder, AttentionLayer, LSTMDecoder)

# ptflops keeps the hooks of the model that it counts in a global variable.
_one_at_a_time = threading.Lock()


@dataclass
class Complexity:
    """What running a model on some sentence pairs costs; MACs are sums over all of them.

    Attributes:
        params: number of parameters, tied ones once.
        sentences, source_tokens, target_tokens: what was run.
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
        """MACs of what is really computed, attention products included."""
        return self.macs + self.by_kind[PRODUCTS] - self.by_kind[REPEATED]


def count(
    model: nn.Module, batches: Iterable[dict[str, Tensor]], *, training: bool = False
) -> Complexity:
    """Count what the forward pass on sentence pairs costs, under teacher forcing.

    Args:
        model: an encoder-decoder model or a classifier of this package, or fairseq's Transformer
            or LSTM; put into evaluation mode.
        batches: each with `src_tokens` `(batch, src_len)`, `src_lengths` `(batch,)` and, but for a
            language model, `prev_output_tokens` `(batch, tgt_len)`, without padding, so that a
            sentence costs in a batch what it costs alone (`without_padding` makes such batches);
            only the keys of relative sinusoids are computed once for all sentences of a batch.
        training: count the forward pass of training, which for some models has fewer steps.

    Raises:
        RuntimeError: if ptflops fails.
        InputError: if the model has layers that no hook here knows.
    """
    check_model(model)
    # fairseq's Transformer layers take a fused path that no hook sees unless they were ever in
    # training mode; ptflops switches to evaluation mode itself.
    model.train()
    result = Complexity(params=sum(p.numel() for p in model.parameters()))
    for batch in batches:
        counter = _Counter(model, result, batch, training)
        macs = counter.run()
        result.macs += macs
        if sum(result.by_part.values()) != result.macs:
            raise InputError(
                f"`{type(model).__name__}` has layers that are not counted here; `sut-macs` counts "
                "the models of this package and fairseq's Transformer and LSTM."
            )
        result.sentences += batch["src_tokens"].shape[0]
        result.source_tokens += batch["src_tokens"].numel()
        if "prev_output_tokens" in batch:
            result.target_tokens += batch["prev_output_tokens"].numel()
    return result


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


class _Counter(nn.Module):
    """Wraps a model for one ptflops run and sorts what its hooks count."""

    def __init__(
        self, model: nn.Module, result: Complexity, batch: dict[str, Tensor], in_training: bool
    ) -> None:
        super().__init__()
        self.in_training = in_training
        self.model = model
        self.result = result
        self.batch = batch
        self.error: Exception | None = None
        self.by_name = dict(model.named_modules())
        self.names = {module: name for name, module in self.by_name.items()}
        self.hooks: dict[type[nn.Module], Callable[..., None]] = {
            ExpertInput: self._hook(_expert_linear),
            ExpertOutput: self._hook(_expert_linear),
            AttentionCore: self._products_hook,
            ValueScores: self._value_scores_hook,
            FairseqAttention: self._fairseq_attention_hook,
            AttentionLayer: self._lstm_attention_hook,
            LSTMDecoder: self._lstm_decoder_hook,
            **dict.fromkeys((AttendAfter, AttendBefore), self._decoder_hook),
            nn.GRU: self._hook(_gru),
            nn.GRUCell: self._hook(_gru),
            nn.LSTM: self._hook(_lstm),
            nn.LSTMCell: self._hook(_lstm_cell),
            nn.Linear: self._hook(MODULES_MAPPING[nn.Linear]),
            nn.LayerNorm: self._hook(MODULES_MAPPING[nn.LayerNorm]),
        }

    def run(self) -> int:
        """Count one batch; the MACs in the paper convention."""
        with _one_at_a_time, torch.no_grad():
            macs, _ = get_model_complexity_info(
                self,
                (1,),
                as_strings=False,
                print_per_layer_stat=False,
                # ptflops divides by the length of this, which makes the count that of the batch.
                input_constructor=lambda _: torch.empty(1),
                backend="pytorch",
                custom_modules_hooks=self.hooks,
                # What is counted is named above; patched functionals would count it again.
                backend_specific_config={"count_functional": False},
            )
        if self.error is not None or macs is None:
            reason = " ".join(f"{type(self.error)}: {self.error}".split())
            raise RuntimeError(f"ptflops could not count this model: {reason}") from self.error
        return int(macs)

    def forward(self, placeholder: Tensor) -> None:
        """Run the model on the batch; an error is kept, because ptflops would print it."""
        self.model.train(self.in_training)  # ptflops has switched to evaluation mode
        try:
            output = self.model(**self.batch)
        except Exception as error:
            self.error = error
            return
        extra = output[1] if isinstance(output[1], dict) else {}  # fairseq's LSTM gives weights
        for stack, statistics in extra.get("halting", {}).items():
            halting = self.result.halting
            halting[stack] = halting[stack] + statistics if stack in halting else statistics

    def _hook(self, rule: Callable[..., None]) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            before = module.__flops__
            rule(module, inputs, output)
            macs = module.__flops__ - before
            name = self.names[module]
            self._book(name, macs)
            for parent in self._parents(name):
                # ptflops does not look inside of a module that has a hook.
                if isinstance(parent, _WITH_OTHERS_INSIDE):
                    parent.__flops__ += macs
            if name.endswith((".cross_attention.key", ".cross_attention.value")):
                stack: Any = self.model.get_submodule(name.split(".block.")[0])
                repeated = (stack.num_steps - 1) * macs
                self._book(name, repeated, REPEATED)
                module.__flops__ += repeated

        return hook

    def _book(self, name: str, macs: int, kind: str | None = None) -> None:
        if any(isinstance(parent, FairseqAttention) for parent in self._parents(name)):
            return  # counted as a whole
        projects = any(one in name for one in _PROJECTIONS)
        part = "projection" if projects else name.split(".")[0]
        kind = kind or next((kind for key, kind in _KINDS.items() if key in name), "other")
        self.result.by_part[part] += macs
        self.result.by_kind[kind] += macs

    def _parents(self, name: str) -> Iterator[nn.Module]:
        while "." in name:
            name = name.rsplit(".", 1)[0]
            yield self.by_name[name]

    def _products_hook(self, module: AttentionCore, inputs: Any, output: Tensor) -> None:
        queries, tokens, memory, *_ = inputs
        self.result.by_kind[PRODUCTS] += module.num_products(queries, tokens, memory)

    def _value_scores_hook(self, module: Any, inputs: Any, output: Tensor) -> None:
        _, retrieved = inputs
        with_weights, products = module.num_products(retrieved)
        self._book(self.names[module], with_weights)
        module.__flops__ += with_weights
        self.result.by_kind[PRODUCTS] += products

    def _decoder_hook(self, module: GRUDecoder, inputs: Any, output: Any) -> None:
        tokens, source, *_ = inputs
        self.result.by_kind[PRODUCTS] += module.num_products(tokens.shape[1], source)

    def _lstm_attention_hook(self, module: Any, inputs: Any, output: Any) -> None:
        _, source, *_ = inputs
        self.result.by_kind[PRODUCTS] += 2 * source.numel()

    def _lstm_decoder_hook(self, module: Any, inputs: Any, output: Any) -> None:
        if module.share_input_output_embed:  # its matrix is that of an embedding, without a hook
            macs = output[0].numel() * module.embed_tokens.embedding_dim
            self._book(f"{self.names[module]}.output_projection", macs)
            module.__flops__ += macs

    def _fairseq_attention_hook(self, module: Any, inputs: Any, output: Any) -> None:
        # fairseq passes keywords, which hooks do not see: lengths come from the output and batch.
        tgt_len, batch_size, embed_dim = output[0].shape
        already = module.__flops__
        crosses = module.encoder_decoder_attention
        src_len = self.batch["src_tokens"].shape[1] if crosses else tgt_len
        for projection, length in (
            (module.q_proj, tgt_len),
            (module.k_proj, src_len),
            (module.v_proj, src_len),
            (module.out_proj, tgt_len),
        ):
            rows = torch.empty(batch_size * length, projection.in_features, device="meta")
            out = torch.empty(batch_size * length, projection.out_features, device="meta")
            before = projection.__flops__
            MODULES_MAPPING[nn.Linear](projection, (rows,), out)
            module.__flops__ += projection.__flops__ - before
            projection.__flops__ = before
        self._book(self.names[module], module.__flops__ - already)
        self.result.by_kind[PRODUCTS] += 2 * batch_size * tgt_len * src_len * embed_dim


def _gru(module: Any, inputs: Any, output: Tensor) -> None:
    """MACs of a GRU or a GRU cell: three gates of input and state; biases as for nn.Linear."""
    steps = inputs[0][..., 0].numel()
    module.__flops__ += (
        steps * 3 * module.hidden_size * (module.input_size + module.hidden_size + 2)
    )


def _lstm(module: Any, inputs: Any, output: Any) -> None:
    """MACs of an LSTM: four gates in each layer and direction; biases as for nn.Linear."""
    words = inputs[0].data[..., 0].numel()
    directions = 2 if module.bidirectional else 1
    size = module.hidden_size
    widths = [module.input_size, *[directions * size] * (module.num_layers - 1)]
    module.__flops__ += words * directions * sum(4 * size * (width + size + 2) for width in widths)


def _lstm_cell(module: Any, inputs: Any, output: Any) -> None:
    """The same of one word of each sentence."""
    size = module.hidden_size
    module.__flops__ += len(inputs[0]) * 4 * size * (module.input_size + size + 2)


def _expert_linear(module: Any, inputs: Any, output: Tensor) -> None:
    """MACs of an expert layer, a row for each pair of token and expert; as for nn.Linear."""
    num_pairs = inputs[-1].order.numel()
    bias = 0 if module.bias is None else module.out_features
    module.__flops__ += num_pairs * (module.in_features * module.out_features + bias)
