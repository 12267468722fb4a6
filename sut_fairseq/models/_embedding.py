"""Embeddings of words, as all models of this package begin."""

from __future__ import annotations

import math

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from sut_fairseq.errors import InputError
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.positions import SinusoidalPositions


class Embedding(nn.Module):
    """Token embeddings times sqrt(embed_dim), plus sinusoidal positions unless left out."""

    def __init__(
        self, tokens: nn.Embedding, *, max_positions: int, absolute_positions: bool, dropout: float
    ) -> None:
        super().__init__()
        self.tokens = tokens
        assert tokens.padding_idx is not None
        self.padding_idx: int = tokens.padding_idx
        self.scale = math.sqrt(tokens.embedding_dim)
        self.positions = (
            SinusoidalPositions(tokens.embedding_dim, max_positions, first=self.padding_idx + 1)
            if absolute_positions
            else None
        )
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Embed columns `offset` and after of `(batch, length)`: -> `(batch, rest, embed_dim)`."""
        states = self.scale * self.tokens(tokens[:, offset:])
        if self.positions is not None:
            positions = self.positions(tokens.eq(self.padding_idx), offset)
            states = states + positions.to(states.dtype)
        return self.dropout(states)


def token_embedding(dictionary: Dictionary, embed_dim: int) -> nn.Embedding:
    """A table of words, normal with variance 1 / embed_dim, padding zero."""
    embedding = nn.Embedding(len(dictionary), embed_dim, padding_idx=dictionary.pad())
    nn.init.normal_(embedding.weight, std=embed_dim**-0.5)
    with torch.no_grad():
        embedding.weight[dictionary.pad()].zero_()
    return embedding


def check_precision(parameter: Tensor) -> None:
    """fairseq's --fp16 and --bf16 convert the parameters, which the CPU does not fully support."""
    if parameter.device.type == "cpu" and parameter.dtype in (torch.float16, torch.bfloat16):
        raise InputError(
            f"the model is on the CPU with {parameter.dtype} parameters, but --fp16 and --bf16 "
            "need a GPU: drop the flag, and it runs in float32."
        )
