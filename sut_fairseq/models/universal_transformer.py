"""The (Sparse) Universal Transformer as a fairseq encoder-decoder model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import (
    FairseqEncoder,
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    register_model,
)
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig
from torch import Tensor, nn

from sut_fairseq._process import prepare_process
from sut_fairseq.models._assembly import build_stack, check_translates, decoder_embed_dim
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models._embedding import Embedding, embed, refuse_float16_on_cpu, token_embeddings
from sut_fairseq.models._given import complete, log_depth, warn_of_unread
from sut_fairseq.models._pretrained import Pretrained
from sut_fairseq.modules.attention.cache import DecodingCache
from sut_fairseq.modules.attention.interface import Memory
from sut_fairseq.modules.halting.state import HaltingState
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.stack import Stack, StackOutput
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.modules.trained_words import keep_words

_CACHE = "decoding_cache"  # its key in fairseq's incremental state


class UniversalTransformerEncoder(FairseqEncoder):
    """Embedding and stack; see `UniversalTransformerModel` for the statistics it returns."""

    def __init__(
        self, dictionary: Dictionary, embedding: Embedding, stack: Stack, max_positions: int
    ) -> None:
        super().__init__(dictionary)
        self.embedding = embedding
        self.stack = stack
        self._max_positions = max_positions

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        observers: Mapping[str, Observer] | None = None,
        num_steps: int | None = None,
    ) -> dict[str, Any]:
        """Encode.

        Args:
            src_tokens: `(batch, src_len)`.
            src_lengths: not needed; fairseq passes it.
            observers: the one named "encoder" is shown what the stack computes.
            num_steps: see `Stack.forward`.

        Returns:
            fairseq's `encoder_out`: `[(src_len, batch, embed_dim)]`, its `encoder_padding_mask`:
            `[(batch, src_len)]`, True = padding, and the `routing` and `halting` statistics;
            after `reorder_encoder_out` also `rows`. `states` is `encoder_out`, not transposed: the
            hooks by which fairseq finds the module that made a NaN need a tensor in every output.
        """
        refuse_float16_on_cpu(self.embedding.tokens.weight)
        padding_mask = src_tokens.eq(self.dictionary.pad())
        observer = (observers or {}).get("encoder")
        output = self.stack(
            self.embedding(src_tokens), padding_mask, num_steps=num_steps, observer=observer
        )
        return {
            "encoder_out": [output.states.transpose(0, 1)],
            "encoder_padding_mask": [padding_mask],
            "states": output.states,
            **statistics_of("encoder", output),
        }

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Select sentences, `new_order` `(new_batch,)`; the statistics stay those of the batch.

        Nothing is copied: `rows`, `[(new_batch,)]`, says which sentence of the tensors each one
        reads, so that the hypotheses of a beam share their source's keys and values.
        """
        rows = encoder_out.get("rows")
        chosen = new_order if rows is None else rows[0].index_select(0, new_order)
        return {**encoder_out, "rows": [chosen]}

    def max_positions(self) -> int:
        return self._max_positions


class _LastLook(Observer):
    """Cross-attention weights, averaged over heads and experts, of each token's last step.

    Steps that a token takes after its read-out, for the sake of others (ACT), do not count.
    """

    def __init__(self) -> None:
        self.weights: Tensor | None = None
        self._tokens: ActiveTokens | None = None
        self._counts: Tensor | None = None  # whether the coming step does, (batch, length)

    def halting(self, tokens: ActiveTokens, state: HaltingState) -> None:
        counts = state.remaining > 0
        self._counts = tokens.put(counts.new_zeros(tokens.batch, tokens.length), counts)

    def step(self, step: int, tokens: ActiveTokens) -> None:
        self._tokens = tokens

    def saw(self, name: str, values: Tensor) -> None:
        if name != "cross_attention.weights":
            return
        assert self._tokens is not None and self._counts is not None, "told before the step"
        tokens, new = self._tokens, values.float().mean(dim=(1, 2))
        if self.weights is None:
            self.weights = new.new_zeros(tokens.batch, tokens.length, new.shape[-1])
        new = new.where(tokens.take(self._counts).unsqueeze(1), tokens.take(self.weights))
        self.weights = tokens.put(self.weights, new, overwrite=True)


class UniversalTransformerDecoder(FairseqIncrementalDecoder):
    """Embedding, stack, and output projection; decodes incrementally.

    With a stack without cross-attention it reads no encoder and is a language model.

    Attributes:
        reports_attention: whether `forward` returns attention weights, which rules out torch's
            fused attention; in training it never does.
    """

    reports_attention: bool = False

    def __init__(
        self,
        dictionary: Dictionary,
        embedding: Embedding,
        stack: Stack,
        output_projection: nn.Linear,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embedding = embedding
        self.stack = stack
        self.output_projection = output_projection
        self._max_positions = max_positions

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any] | None = None,
        incremental_state: dict | None = None,
        observers: Mapping[str, Observer] | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Decode.

        Args:
            prev_output_tokens: all target tokens so far, `(batch, tgt_len)`.
            encoder_out: what the encoder returned; None in a language model.
            incremental_state: fairseq's; if given, only the tokens that it has not seen yet are
                computed.
            observers: the one named "decoder" is shown what the stack computes.

        Returns:
            scores `(batch, new_len, vocabulary)` and a dict: `attn`, None, or if it
            `reports_attention` `[(batch, new_len, src_len)]`, of the last step that counts in each
            token's read-out, averaged over heads and experts; `routing` and `halting`, the
            statistics of encoder and decoder by name.
        """
        cache = self.get_incremental_state(incremental_state, _CACHE)
        if cache is None and incremental_state is not None:
            cache = DecodingCache()
            self.set_incremental_state(incremental_state, _CACHE, cache)
        memory = None if cache is None else cache.memory
        if memory is None and encoder_out is not None:
            memory = self._cross_memory(encoder_out)
        offset = 0
        if cache is not None:
            cache.memory, offset = memory, cache.length
        states = self.embedding(prev_output_tokens, offset)
        padding_mask = prev_output_tokens[:, offset:].eq(self.dictionary.pad())
        observer = (observers or {}).get("decoder")
        attention = None
        if self.reports_attention and not self.training and memory is not None and not observer:
            observer = attention = _LastLook()
        output = self.stack(states, padding_mask, memory, cache, observer=observer)
        statistics = statistics_of("decoder", output)
        return self.output_layer(output.states), {
            "attn": None if attention is None else [attention.weights],
            **{
                kind: {**(encoder_out or {}).get(kind, {}), **own}
                for kind, own in statistics.items()
            },
        }

    def _cross_memory(self, encoder_out: dict[str, Any]) -> Memory:
        """Keys and values of cross-attention."""
        memory = self.stack.cross_memory(
            encoder_out["encoder_out"][0].transpose(0, 1),
            encoder_out["encoder_padding_mask"][0],
        )
        return memory._replace(rows=encoder_out["rows"][0]) if "rows" in encoder_out else memory

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores over the vocabulary, `(..., embed_dim)` -> `(..., vocabulary)`."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        """Select beams, `new_order` `(new_batch,)`, in what `forward` keeps between positions."""
        cache = self.get_incremental_state(incremental_state, _CACHE)
        if cache is not None:
            cache.reorder(new_order)

    def max_positions(self) -> int:
        return self._max_positions


@register_model("universal_transformer", dataclass=UniversalTransformerConfig)
class UniversalTransformerModel(Pretrained, FairseqEncoderDecoderModel):
    """Universal Transformer with optional mixtures of experts and halting (SUT).

    `forward` returns `(scores, extra)`: scores `(batch, tgt_len, vocabulary)`; `extra["routing"]`
    maps "encoder.feed_forward", "decoder.cross_attention", ... to `RoutingStatistics` and
    `extra["halting"]` maps "encoder" and "decoder" to `HaltingStatistics`, where they are on.
    """

    @classmethod
    def build_model(
        cls, cfg: UniversalTransformerConfig, task: FairseqTask
    ) -> UniversalTransformerModel:
        """Build the model that the options describe.

        Raises:
            InputError: if an option has a value that is not allowed.
        """
        prepare_process()
        check_translates(task)
        cfg = complete(UniversalTransformerConfig, cfg)
        encoder_stack, decoder_stack = build_stack(cfg, "encoder"), build_stack(cfg, "decoder")
        source, target = task.source_dictionary, task.target_dictionary
        target_dim = decoder_embed_dim(cfg)
        source_tokens, target_tokens, projection = token_embeddings(
            cfg, source, target, target_dim=target_dim, output_dim=target_dim
        )

        encoder = UniversalTransformerEncoder(
            source,
            embed(cfg, source_tokens, cfg.max_source_positions, cfg.dropout),
            encoder_stack,
            cfg.max_source_positions,
        )
        decoder = UniversalTransformerDecoder(
            target,
            embed(cfg, target_tokens, cfg.max_target_positions, cfg.dropout),
            decoder_stack,
            projection,
            cfg.max_target_positions,
        )
        log_depth(cfg, "encoder", "decoder")
        warn_of_unread(cfg)
        model = cls(encoder, decoder)
        keep_words(model, source.symbols, target.symbols)
        return model

    def prepare_for_inference_(self, cfg: DictConfig) -> None:
        """Prepare the model for generation; report attention if the options use it."""
        super().prepare_for_inference_(cfg)
        self.decoder.reports_attention = cfg.generation.print_alignment is not None


def statistics_of(side: str, output: StackOutput) -> dict[str, dict[str, Any]]:
    """A model's extra output: "routing" and "halting" statistics of its "encoder" or "decoder"."""
    return {
        "routing": {f"{side}.{name}": sums for name, sums in output.routing.items()},
        "halting": {} if output.halting is None else {side: output.halting},
    }
