"""How ptflops counts one batch: rules for the layers that it does not know, sums by kind of work.

ptflops drives the count and supplies the rule of each ordinary layer. It sees no matrix products
outside of `nn.Linear`, so the experts, the attention core and fairseq's attention get hooks here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.models.lstm import AttentionLayer, LSTMDecoder
from fairseq.modules import MultiheadAttention as FairseqAttention
from ptflops import get_model_complexity_info
from ptflops.pytorch_ops import MODULES_MAPPING
from torch import Tensor, nn

from sut_fairseq.analysis.countable import counts_itself
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


# Modules with hooks whose parts have hooks of their own.
_WITH_OTHERS_INSIDE = (AttentionCore, ValueScores, GRUDecoder, AttentionLayer, LSTMDecoder)

# ptflops keeps the hooks of the model that it counts in a global variable.
_one_at_a_time = threading.Lock()


class BatchCounter(nn.Module):
    """Wraps a model for one ptflops run and sorts what its hooks count.

    Args:
        model: see `complexity.count`.
        batch: one of its batches.
        in_training: whether the model runs as in training.

    Attributes:
        by_part, by_kind: MACs of the batch, as in `Complexity`.
        halting: statistics of each stack that halts.
    """

    def __init__(self, model: nn.Module, batch: dict[str, Tensor], in_training: bool) -> None:
        super().__init__()
        self.in_training = in_training
        self.model = model
        self.batch = batch
        self.by_part: Counter[str] = Counter()
        self.by_kind: Counter[str] = Counter()
        self.halting: dict[str, HaltingStatistics] = {}
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
        for kind in {type(module) for module in self.names if counts_itself(module)}:
            self.hooks[kind] = self._hook(_own_rule)

    def run(self) -> int:
        """Count the batch and return its MACs in the paper convention.

        Raises:
            InputError: if the model or ptflops fails.
        """
        with _one_at_a_time:
            macs, _ = get_model_complexity_info(
                self,
                (1,),
                as_strings=False,
                print_per_layer_stat=False,
                # ptflops divides by the length of this; with 1, the count is that of the batch.
                input_constructor=lambda _: torch.empty(1),
                backend="pytorch",
                custom_modules_hooks=self.hooks,
                # The hooks above count everything; patched functionals would count it again.
                backend_specific_config={"count_functional": False},
            )
        if self.error is not None or macs is None:
            reason = "see what it printed above"
            if self.error is not None:  # many an exception has no text besides its type
                words = f"{type(self.error).__name__}: {self.error}".split()
                reason = " ".join(words).rstrip(":.")
            raise InputError(f"ptflops could not count this model: {reason}.") from self.error
        return int(macs)

    def forward(self, placeholder: Tensor) -> None:
        """Run the model on the batch; an error is kept, because ptflops would print it."""
        self.model.train(self.in_training)  # ptflops has switched to evaluation mode
        try:
            output = self.model(**self.batch)
        except Exception as error:
            self.error = error
            return
        extra = output[1] if isinstance(output[1], dict) else {}  # fairseq's LSTM has weights
        self.halting = extra.get("halting", {})

    def _hook(self, rule: Callable[..., None]) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            before = module.__flops__
            rule(module, inputs, output)
            macs = module.__flops__ - before
            name = self.names[module]
            self._book(name, macs)
            for parent in self._parents(name):
                # ptflops does not look inside a module that has a hook.
                if isinstance(parent, _WITH_OTHERS_INSIDE) or counts_itself(parent):
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
        self.by_part[part] += macs
        self.by_kind[kind] += macs

    def _parents(self, name: str) -> Iterator[nn.Module]:
        while "." in name:
            name = name.rsplit(".", 1)[0]
            yield self.by_name[name]

    def _products_hook(self, module: AttentionCore, inputs: Any, output: Tensor) -> None:
        queries, tokens, memory, *_ = inputs
        self.by_kind[PRODUCTS] += module.num_products(queries, tokens, memory)

    def _value_scores_hook(self, module: Any, inputs: Any, output: Tensor) -> None:
        _, retrieved = inputs
        with_weights, products = module.num_products(retrieved)
        self._book(self.names[module], with_weights)
        module.__flops__ += with_weights
        self.by_kind[PRODUCTS] += products

    def _decoder_hook(self, module: GRUDecoder, inputs: Any, output: Any) -> None:
        tokens, source, *_ = inputs
        self.by_kind[PRODUCTS] += module.num_products(tokens.shape[1], source)

    def _lstm_attention_hook(self, module: Any, inputs: Any, output: Any) -> None:
        _, source, *_ = inputs
        self.by_kind[PRODUCTS] += 2 * source.numel()

    def _lstm_decoder_hook(self, module: Any, inputs: Any, output: Any) -> None:
        if module.share_input_output_embed:  # its matrix is that of an embedding, without a hook
            macs = output[0].numel() * module.embed_tokens.embedding_dim
            self._book(f"{self.names[module]}.output_projection", macs)
            module.__flops__ += macs

    def _fairseq_attention_hook(self, module: Any, inputs: Any, output: Any) -> None:
        # Hooks do not see fairseq's keyword arguments: lengths come from the output and the batch.
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
        self.by_kind[PRODUCTS] += 2 * batch_size * tgt_len * src_len * embed_dim


def _own_rule(module: Any, inputs: Any, output: Any) -> None:
    """MACs of a module of a plugin, by its own account."""
    module.__flops__ += module.macs(inputs, output)


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
    """MACs of an LSTM cell, which reads one word of each sentence."""
    size = module.hidden_size
    module.__flops__ += len(inputs[0]) * 4 * size * (module.input_size + size + 2)


def _expert_linear(module: Any, inputs: Any, output: Tensor) -> None:
    """MACs of an expert layer, a row for each pair of token and expert; bias as for nn.Linear.

    The rows of inactive tokens, which the masked layout keeps, are not computed.
    """
    num_pairs = sum(inputs[-1].sizes[:-1])
    bias = 0 if module.bias is None else module.out_features
    module.__flops__ += num_pairs * (module.in_features * module.out_features + bias)
