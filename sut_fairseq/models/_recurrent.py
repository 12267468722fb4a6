"""Encoder and decoder of the recurrent translation model, with fairseq's interfaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from torch import Tensor, nn

from sut_fairseq.models._embedding import Embedding, refuse_float16_on_cpu
from sut_fairseq.models._words import check_words, unread
from sut_fairseq.modules.location import MAPS
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.recurrent.attenders.interface import Source
from sut_fairseq.modules.recurrent.gru import DecoderState, GRUDecoder, GRUEncoder
from sut_fairseq.modules.recurrent.stop_gate import StopGate
from sut_fairseq.modules.tokens import ActiveTokens
from sut_fairseq.modules.words import Words

_STATE = "decoded"  # key of a `_Decoded` in fairseq's incremental state


class RecurrentEncoder(FairseqEncoder):
    """Embedding and GRU over the words of a sentence."""

    def __init__(
        self,
        dictionary: Dictionary,
        embedding: Embedding,
        reader: GRUEncoder,
        *,
        boundary_tokens: bool,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embedding = embedding
        self.reader = reader
        self.unread = unread(dictionary, boundary_tokens=boundary_tokens)
        self._max_positions = max_positions

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        observers: Mapping[str, Observer] | None = None,
    ) -> dict[str, Any]:
        """Encode.

        Args:
            src_tokens: `(batch, src_len)`, padded on either side.
            src_lengths, observers: not needed; fairseq and `sut-report` pass them.

        Returns:
            fairseq's `encoder_out`: `[(num_words, batch, hidden)]` for words moved to the left, its
            `encoder_padding_mask`: `[(batch, num_words)]`, True = padding; `final`: the last states
            `[(batch, hidden)]`, `lengths`: numbers of words `[(batch,)]`, `columns`: where the
            words stand in `src_tokens` `[(batch, num_words)]`, and `src_len`: `[src_len]`. `states`
            is for fairseq's search for NaN, see `UniversalTransformerEncoder`.

        Raises:
            InputError: if a sentence has nothing to read.
        """
        refuse_float16_on_cpu(self.embedding.tokens.weight)
        words = Words.of(src_tokens, self.unread)
        check_words(words, "a recurrent_translation model")
        states, final = self.reader(self.embedding(words.tokens), words.lengths)
        return {
            "encoder_out": [states.transpose(0, 1)],
            "encoder_padding_mask": [Source(states, words.lengths).padding_mask],
            "final": [final],
            "lengths": [words.lengths],
            "columns": [words.columns],
            "src_len": [src_tokens.shape[1]],
            "states": states,
        }

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Select sentences, `new_order` `(new_batch,)`."""

        def select(name: str, values: list[Any]) -> list[Any]:
            if name in ("src_len", "states"):
                return values
            return [x.index_select(1 if name == "encoder_out" else 0, new_order) for x in values]

        return {name: select(name, values) for name, values in encoder_out.items()}

    def max_positions(self) -> int:
        return self._max_positions


class _Decoded:
    """What incremental decoding keeps between tokens."""

    def __init__(self, state: DecoderState, source: Source) -> None:
        self.state = state
        self.length = 0
        # The last token's attention weights, for the stop gate, `(batch, 1, num_words)`.
        self.weights = source.states.new_zeros(source.states.shape[0], 1, source.states.shape[1])

    def select(self, chosen: Tensor) -> None:
        """Select sentences."""
        self.state = self.state.select(chosen)
        self.weights = self.weights.index_select(0, chosen)


class RecurrentDecoder(FairseqIncrementalDecoder):
    """Embedding, GRU with an attender, and output projection; decodes incrementally."""

    def __init__(
        self,
        dictionary: Dictionary,
        embedding: Embedding,
        writer: GRUDecoder,
        output_projection: nn.Linear,
        stop_gate: StopGate | None,
        max_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embedding = embedding
        self.writer = writer
        self.output_projection = output_projection
        self.stop_gate = stop_gate
        self._max_positions = max_positions

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict | None = None,
        observers: Mapping[str, Observer] | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Decode.

        Args:
            prev_output_tokens: all target tokens so far, padded at the end, `(batch, tgt_len)`.
            encoder_out: what the encoder returned.
            incremental_state: fairseq's; if given, only the tokens that it has not seen yet are
                computed.
            observers: the one named "decoder" is shown the weights and their components, as those
                of a single step with one head.

        Returns:
            scores `(batch, new_len, vocabulary)` and a dict: `attn`, the attention weights
            `[(batch, new_len, src_len)]`, 0 except at words.
        """
        lengths = encoder_out["lengths"][0]
        source = Source(encoder_out["encoder_out"][0].transpose(0, 1), lengths)
        decoded = self.get_incremental_state(incremental_state, _STATE)
        if decoded is None:
            decoded = _Decoded(self.writer.start(encoder_out["final"][0], source), source)
            self.set_incremental_state(incremental_state, _STATE, decoded)
        offset = decoded.length
        inputs = self.embedding(prev_output_tokens, offset)
        observer = (observers or {}).get("decoder")
        seen: defaultdict[str, list[Tensor]] = defaultdict(list)  # pieces, along the tokens
        look = None
        if observer is not None and observer.looks_inside:
            look = lambda name, values: seen[name].append(values)  # noqa: E731
        outputs, weights, decoded.state = self.writer(inputs, source, decoded.state, look)
        decoded.length += inputs.shape[1]
        attention = self._by_column(weights, encoder_out)
        if observer is not None:
            padding_mask = prev_output_tokens[:, offset:].eq(self.dictionary.pad())
            tokens = ActiveTokens.from_mask(~padding_mask)
            observer.step(0, tokens)
            for name, pieces in seen.items():
                values = torch.cat(pieces, dim=1)
                if name in MAPS:
                    values = self._by_column(values, encoder_out)
                observer.saw(f"cross_attention.{name}", tokens.take(values).unsqueeze(1))
            if look is not None:
                weights_of_groups = tokens.take(attention)[:, None, None]
                observer.saw("cross_attention.weights", weights_of_groups)
        scores = self.output_layer(outputs)
        if self.stop_gate is not None:
            scores = self.stop_gate(scores, torch.cat([decoded.weights, weights], dim=1), lengths)
            decoded.weights = weights[:, -1:]
        return scores, {"attn": [attention]}

    def _by_column(self, weights: Tensor, encoder_out: dict[str, Any]) -> Tensor:
        """`(batch, width, num_words)` -> `(batch, width, src_len)`, in the words' columns."""
        columns = encoder_out["columns"][0].unsqueeze(1).expand_as(weights)
        blank = weights.new_zeros(*weights.shape[:2], encoder_out["src_len"][0])
        return blank.scatter(2, columns, weights)

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores over the vocabulary, `(..., size)` -> `(..., vocabulary)`."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        """Select beams, `new_order` `(new_batch,)`, in what `forward` keeps between tokens."""
        decoded = self.get_incremental_state(incremental_state, _STATE)
        if decoded is not None:
            decoded.select(new_order)

    def max_positions(self) -> int:
        return self._max_positions
