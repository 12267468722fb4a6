"""GRU encoder and decoders of a recurrent sequence-to-sequence model (LOC section 4, 6.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.observer import Look
from sut_fairseq.modules.recurrent.attenders.interface import Attender, Source, State


class GRUEncoder(nn.Module):
    """A GRU with a residual connection from its inputs to its outputs: e_s = h_s + W x_s.

    W brings a word's embedding to the size of a state; if their sizes are equal, there is no W.

    Args:
        input_dim: size of a word's embedding.
        hidden_dim: size of a state.
    """

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.gru = nn.GRU(input_dim, hidden_dim, batch_first=True)
        self.residual = (
            nn.Identity()
            if input_dim == hidden_dim
            else nn.Linear(input_dim, hidden_dim, bias=False)
        )

    def forward(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Read from the first word to the last.

        Args:
            inputs: embedded words, padded on the right, `(batch, length, input_dim)`.
            lengths: number of words, at least 1, `(batch,)`.

        Returns:
            e, undefined at padding, `(batch, length, hidden_dim)`, and h after the last word,
            `(batch, hidden_dim)`.
        """
        hidden, _ = self.gru(inputs)
        rows = torch.arange(len(inputs), device=inputs.device)
        return hidden + self.residual(inputs), hidden[rows, lengths - 1]


class DecoderState(NamedTuple):
    """What a decoder remembers of earlier tokens; passed in and returned.

    Attributes:
        hidden: the GRU's state, `(batch, hidden_dim)`.
        attender: the attender's.
    """

    hidden: Tensor
    attender: State

    def select(self, rows: Tensor) -> DecoderState:
        """The state of these sentences, `(new_batch,)`."""
        return DecoderState(self.hidden.index_select(0, rows), self.attender.select(rows))


class GRUDecoder(nn.Module, ABC):
    """Base of the decoders, which differ in what they feed the attended source into.

    Args:
        attender: decides where to look.
        dropout: of the encoder's last state, the bottleneck between encoder and decoder.
    """

    def __init__(self, attender: Attender, *, dropout: float) -> None:
        super().__init__()
        self.attender = attender
        self.dropout = Dropout(dropout)

    def start(self, final: Tensor, source: Source) -> DecoderState:
        """The state before the first token.

        Args:
            final: the encoder's state after the last word, `(batch, hidden_dim)`.
            source: what will be attended to.
        """
        return DecoderState(self.dropout(final), self.attender.start(source))

    @abstractmethod
    def forward(
        self, inputs: Tensor, source: Source, state: DecoderState, look: Look | None = None
    ) -> tuple[Tensor, Tensor, DecoderState]:
        """Decode.

        Args:
            inputs: embedded tokens, padded on the right, `(batch, width, input_dim)`.
            source: what is attended to.
            state: the state after the earlier tokens.
            look: receives the components of attention weights, `(batch, width, ...)` each.

        Returns:
            outputs `(batch, width, output_dim)`, attention weights `(batch, width, num_keys)`, and
            the state after the last token.
        """

    @abstractmethod
    def num_products(self, width: int, source: Source) -> int:
        """Multiplications of queries and keys, and of weights and values, for `width` tokens."""


class AttendAfter(GRUDecoder):
    """Attends with the current state, and joins what it finds with it for the output.

    d_t = GRU(x_t, d_{t-1}); g_t = sum over s of attender(k_s, d_t) e_s; output tanh(W [g_t; d_t])
    (Luong et al. 2015). The GRU does not depend on g, so it runs over all tokens in one call.

    Args:
        attender, dropout: see `GRUDecoder`.
        input_dim: size of a token's embedding.
        hidden_dim: size of a state, of the decoder and of the source.
        output_dim: size of the output for each token.
    """

    def __init__(
        self,
        attender: Attender,
        input_dim: int,
        hidden_dim: int,
        output_dim: int,
        *,
        dropout: float,
    ) -> None:
        super().__init__(attender, dropout=dropout)
        self.gru = nn.GRU(input_dim, hidden_dim, batch_first=True)
        self.join = nn.Linear(2 * hidden_dim, output_dim)

    def forward(
        self, inputs: Tensor, source: Source, state: DecoderState, look: Look | None = None
    ) -> tuple[Tensor, Tensor, DecoderState]:
        queries, _ = self.gru(inputs, state.hidden.unsqueeze(0))
        weights, attender = self.attender(queries, source, state.attender, look)
        context = weights.to(source.states.dtype) @ source.states
        outputs = self.join(torch.cat([context, queries], dim=2)).tanh()
        return outputs, weights, DecoderState(queries[:, -1], attender)

    def num_products(self, width: int, source: Source) -> int:
        batch, num_keys, dim = source.states.shape
        searched = self.attender.num_products(width, num_keys, dim)
        return batch * (searched + width * num_keys * dim)


class AttendBefore(GRUDecoder):
    """Attends with the previous state, and feeds the GRU what it finds together with the token.

    g_t = sum over s of attender(k_s, d_{t-1}) e_s; d_t = GRU([g_t; x_t], d_{t-1}); output d_t, or
    a linear layer of it if the sizes differ (Bahdanau et al. 2015).

    Args:
        attender, dropout: see `GRUDecoder`.
        input_dim: size of a token's embedding.
        hidden_dim: size of a state, of the decoder and of the source.
        output_dim: size of the output for each token.
    """

    def __init__(
        self,
        attender: Attender,
        input_dim: int,
        hidden_dim: int,
        output_dim: int,
        *,
        dropout: float,
    ) -> None:
        super().__init__(attender, dropout=dropout)
        self.cell = nn.GRUCell(hidden_dim + input_dim, hidden_dim)
        self.resize = (
            nn.Identity() if hidden_dim == output_dim else nn.Linear(hidden_dim, output_dim)
        )

    def forward(
        self, inputs: Tensor, source: Source, state: DecoderState, look: Look | None = None
    ) -> tuple[Tensor, Tensor, DecoderState]:
        hidden, attender = state
        outputs, looked_at = [], []
        for column in inputs.unbind(1):
            weights, attender = self.attender(hidden.unsqueeze(1), source, attender, look)
            context = (weights.to(source.states.dtype) @ source.states).squeeze(1)
            hidden = self.cell(torch.cat([context, column], dim=1), hidden)
            outputs.append(hidden)
            looked_at.append(weights)
        return (
            self.resize(torch.stack(outputs, dim=1)),
            torch.cat(looked_at, dim=1),
            DecoderState(hidden, attender),
        )

    def num_products(self, width: int, source: Source) -> int:
        batch, num_keys, dim = source.states.shape
        searched = self.attender.num_products(1, num_keys, dim)
        return batch * width * (searched + num_keys * dim)
