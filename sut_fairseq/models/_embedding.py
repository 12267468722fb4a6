"""Word embeddings with positions, from which the models with a depth loop start."""

from __future__ import annotations

import math

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from sut_fairseq.errors import InputError
from sut_fairseq.models._config import EmbeddingOptions, TokenOptions
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.positions import SinusoidalPositions


class Embedding(nn.Module):
    """Token embeddings times sqrt(embed_dim), plus sinusoidal positions.

    Args:
        tokens: the table.
        max_positions: greatest length of a sentence; None: no positions.
        dropout: of the sum.
    """

    def __init__(
        self, tokens: nn.Embedding, max_positions: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = tokens
        assert tokens.padding_idx is not None
        self.padding_idx: int = tokens.padding_idx
        self.scale = math.sqrt(tokens.embedding_dim)
        self.positions = None
        if max_positions is not None:
            first = self.padding_idx + 1
            self.positions = SinusoidalPositions(tokens.embedding_dim, max_positions, first=first)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Embed columns from `offset` on of `(batch, length)`: -> `(batch, rest, embed_dim)`."""
        states = self.scale * self.tokens(tokens[:, offset:])
        if self.positions is not None:
            positions = self.positions(tokens.eq(self.padding_idx), offset)
            states = states + positions.to(states.dtype)
        return self.dropout(states)


def embed(
    options: EmbeddingOptions, tokens: nn.Embedding, longest: int, dropout: float
) -> Embedding:
    """The table with absolute positions for `longest` tokens, unless the options leave them out."""
    absolute = not options.no_token_positional_embeddings
    return Embedding(tokens, longest if absolute else None, dropout=dropout)


def token_embedding(dictionary: Dictionary, embed_dim: int) -> nn.Embedding:
    """A table of embeddings, normal with variance 1 / embed_dim; zero for padding."""
    embedding = nn.Embedding(len(dictionary), embed_dim, padding_idx=dictionary.pad())
    nn.init.normal_(embedding.weight, std=embed_dim**-0.5)
    with torch.no_grad():
        embedding.weight[dictionary.pad()].zero_()
    return embedding


def token_embeddings(
    options: TokenOptions,
    source: Dictionary,
    target: Dictionary,
    *,
    target_dim: int,
    output_dim: int,
) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """Source embedding, target embedding and output projection, tied as the options say.

    Args:
        options: of a translation model.
        source, target: the dictionaries.
        target_dim: size of a target token's embedding.
        output_dim: input size of the output projection; `target_dim` if it is tied.

    Raises:
        InputError: if they cannot be tied.
    """
    source_tokens = token_embedding(source, options.encoder_embed_dim)
    share_all = options.share_all_embeddings and not options.separate_embeddings
    if share_all:
        if source != target:
            raise InputError(
                "`share_all_embeddings` needs one dictionary for both languages, but the data has "
                "two: preprocess with --joined-dictionary (parallel_text.sh: --joined), or train "
                "with --separate-embeddings."
            )
        if options.encoder_embed_dim != target_dim:
            raise InputError(
                "`share_all_embeddings` needs equal sizes, but `encoder_embed_dim` is "
                f"{options.encoder_embed_dim} and `decoder_embed_dim` is {target_dim}."
            )
        target_tokens = source_tokens
    else:
        target_tokens = token_embedding(target, target_dim)
    projection = nn.Linear(output_dim, len(target), bias=False)
    if ties_output(options):
        projection.weight = target_tokens.weight
    else:
        nn.init.normal_(projection.weight, std=output_dim**-0.5)
    return source_tokens, target_tokens, projection


def ties_output(options: TokenOptions) -> bool:
    """Whether the output projection is the target embedding."""
    shared = options.share_all_embeddings or options.share_decoder_input_output_embed
    return shared and not options.separate_embeddings


def refuse_float16_on_cpu(parameter: Tensor) -> None:
    """Refuse float16 parameters, as of fairseq's --fp16, on the CPU, which lacks full support."""
    if parameter.device.type == "cpu" and parameter.dtype == torch.float16:
        raise InputError(
            "the model has torch.float16 parameters, which need a GPU, but it is on the CPU: drop "
            "--fp16, or call `model.float()`, and it runs in float32."
        )
