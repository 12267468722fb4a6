"""The differentiable neural computer as a reader of whole sentences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sut_fairseq.modules.recurrent.memory import ExternalMemory


class DNC(nn.Module):
    """A DNC (Graves et al. 2016) with an LSTM controller, read out after the last word.

    Args:
        input_dim: size of a word's embedding.
        hidden_dim: size of the controller's state, and of the output.
        memory: the external memory.
    """

    def __init__(self, input_dim: int, hidden_dim: int, memory: ExternalMemory) -> None:
        super().__init__()
        self.output_dim = hidden_dim
        self.memory = memory
        read_dim = memory.num_heads * memory.word_dim
        self.controller = nn.LSTMCell(input_dim + read_dim, hidden_dim)
        self.interface = nn.Linear(hidden_dim, memory.interface_dim)
        self.output = nn.Linear(hidden_dim + read_dim, hidden_dim)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Read.

        Args:
            inputs: embedded words, padded on the right, `(batch, length, input_dim)`.
            lengths: number of words, at least 1, `(batch,)`.

        Returns:
            the output after the last word, `(batch, output_dim)`.
        """
        memory = self.memory.start(inputs)
        words = inputs.new_zeros(len(inputs), self.controller.input_size - inputs.shape[2])
        state: tuple[Tensor, Tensor] | None = None
        seen = []
        for column in inputs.unbind(1):
            state = self.controller(torch.cat([column, words], dim=1), state)
            read, memory = self.memory(self.interface(state[0]), memory)
            words = read.flatten(1)
            seen.append(torch.cat([state[0], words], dim=1))
        rows = torch.arange(len(inputs), device=inputs.device)
        return self.output(torch.stack(seen, dim=1)[rows, lengths - 1])
