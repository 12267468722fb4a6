"""The LSTM as a reader of whole sentences."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence


class LSTM(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) read out where it has seen the whole sentence.

    That is after the last word, and in the direction from right to left after the first one.

    Args:
        input_dim: size of a word's embedding.
        hidden_dim: size of a layer's state in each direction.
        num_layers: number of layers, at least 1.
        bidirectional: run every layer in both directions.
        dropout: between layers.
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        self.output_dim = directions * hidden_dim
        self.layers = nn.LSTM(
            input_dim,
            hidden_dim,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,
        )

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Read.

        Args:
            inputs: embedded words, padded on the right, `(batch, length, input_dim)`.
            lengths: number of words, at least 1, `(batch,)`.

        Returns:
            the last layer's final states, both directions side by side, `(batch, output_dim)`.
        """
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (final, _) = self.layers(packed)
        last: Tensor = final[-2:] if self.layers.bidirectional else final[-1:]
        return last.transpose(0, 1).flatten(1)
