"""Recurrent networks as classifiers: LSTM, bidirectional LSTM, differentiable neural computer."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from dataclasses import dataclass, field
from typing import Any, Optional, Union

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from sut_fairseq._process import prepare_process
from sut_fairseq.errors import InputError, check, check_choice
from sut_fairseq.models._classifier import Classifier, num_labels
from sut_fairseq.models._embedding import refuse_float16_on_cpu
from sut_fairseq.models._given import complete, warn_of_unread
from sut_fairseq.models._words import check_words, unread
from sut_fairseq.modules.dropout import Dropout
from sut_fairseq.modules.recurrent.dnc import DNC
from sut_fairseq.modules.recurrent.lstm import LSTM
from sut_fairseq.modules.recurrent.memory import ExternalMemory
from sut_fairseq.modules.words import Words

# fairseq knows `Optional[int]` but not `int | None`.
# ruff: noqa: UP007, UP045


@dataclass
class RecurrentClassifierConfig(FairseqDataclass):
    """Options of the recurrent classifiers."""

    recurrent_kind: ChoiceEnum(["lstm", "dnc"]) = field(  # type: ignore[valid-type]
        default="lstm", metadata={"help": "LSTM or differentiable neural computer"}
    )
    encoder_embed_dim: int = field(default=200, metadata={"help": "size of a word's embedding"})
    encoder_hidden_size: int = field(
        default=200,
        metadata={"help": "state of a layer, of each direction; of the DNC's controller"},
    )
    encoder_layers: int = field(default=1, metadata={"help": "number of layers (lstm)"})
    encoder_bidirectional: bool = field(
        default=False, metadata={"help": "read in both directions (lstm)"}
    )
    dropout: float = field(
        default=0.1, metadata={"help": "dropout of embeddings, between layers and of the read-out"}
    )
    boundary_tokens: bool = field(
        default=False, metadata={"help": "read the begin and the end token too, not words alone"}
    )
    dnc_cells: int = field(default=21, metadata={"help": "number of memory cells"})
    dnc_read_heads: int = field(default=4, metadata={"help": "number of read heads"})
    dnc_word_size: Optional[int] = field(
        default=None, metadata={"help": "size of a memory cell (default: --encoder-hidden-size)"}
    )
    no_dnc_masking: bool = field(
        default=False, metadata={"help": "look cells up by all of their components"}
    )
    no_dnc_erasure: bool = field(
        default=False, metadata={"help": "leave the content of a cell that is freed"}
    )
    no_dnc_sharpening: bool = field(
        default=False, metadata={"help": "follow temporal links without sharpening"}
    )
    max_source_positions: int = field(
        default=1024, metadata={"help": "greatest number of tokens in a source sentence"}
    )
    max_target_positions: int = field(
        default=1024, metadata={"help": "greatest number of tokens in a target sentence"}
    )


@register_model("recurrent_classifier", dataclass=RecurrentClassifierConfig)
class RecurrentClassifier(Classifier):
    """Embedding, recurrent network, and one linear layer on its output for the whole sentence.

    `forward` returns `(scores, extra)`: scores `(batch, num_labels)`; `extra` is empty.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        reader: Union[LSTM, DNC],
        *,
        embed_dim: int,
        num_labels: int,
        dropout: float,
        boundary_tokens: bool,
        max_positions: tuple[int, int],
    ) -> None:
        super().__init__(max_positions)
        self.embedding = nn.Embedding(len(dictionary), embed_dim, padding_idx=dictionary.pad())
        self.reader = reader
        self.dropout = Dropout(dropout)
        self.output_projection = nn.Linear(reader.output_dim, num_labels)
        self.unread = unread(dictionary, boundary_tokens=boundary_tokens)

    @classmethod
    def build_model(
        cls, cfg: RecurrentClassifierConfig, task: FairseqTask
    ) -> "RecurrentClassifier":
        """Build the model that the options describe.

        Raises:
            InputError: if an option has a value that is not allowed.
        """
        prepare_process()
        cfg = complete(RecurrentClassifierConfig, cfg)
        size = num_labels(task)
        kind = str(cfg.recurrent_kind)
        check_choice("recurrent_kind", kind, _KINDS)
        check(cfg.encoder_layers >= 1, "encoder_layers", "at least 1", cfg.encoder_layers)
        model = cls(
            task.source_dictionary,
            _KINDS[kind](cfg),
            embed_dim=cfg.encoder_embed_dim,
            num_labels=size,
            dropout=cfg.dropout,
            boundary_tokens=cfg.boundary_tokens,
            max_positions=(cfg.max_source_positions, cfg.max_target_positions),
        )
        warn_of_unread(cfg)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        prev_output_tokens: Optional[Tensor] = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Classify.

        Args:
            src_tokens: `(batch, src_len)`, padded on either side.
            src_lengths, prev_output_tokens: not needed; fairseq passes them.

        Returns:
            scores `(batch, num_labels)` and an empty dictionary.

        Raises:
            InputError: if a sentence has nothing to read.
        """
        refuse_float16_on_cpu(self.embedding.weight)
        words = Words.of(src_tokens, self.unread)
        check_words(words, "a recurrent_classifier")
        states = self.reader(self.dropout(self.embedding(words.tokens)), words.lengths)
        return self.output_projection(self.dropout(states)), {}


def _build_lstm(cfg: RecurrentClassifierConfig) -> LSTM:
    return LSTM(
        cfg.encoder_embed_dim,
        cfg.encoder_hidden_size,
        num_layers=cfg.encoder_layers,
        bidirectional=cfg.encoder_bidirectional,
        dropout=cfg.dropout,
    )


def _build_dnc(cfg: RecurrentClassifierConfig) -> DNC:
    word_size = cfg.encoder_hidden_size if cfg.dnc_word_size is None else cfg.dnc_word_size
    for option, size in (("dnc_cells", cfg.dnc_cells), ("dnc_read_heads", cfg.dnc_read_heads)):
        check(size >= 1, option, "at least 1", size)
    if cfg.encoder_bidirectional or cfg.encoder_layers != 1:
        raise InputError(
            "--recurrent-kind dnc has one layer and one direction: leave --encoder-layers and "
            "--encoder-bidirectional out."
        )
    memory = ExternalMemory(
        cfg.dnc_cells,
        cfg.dnc_read_heads,
        word_size,
        masked=not cfg.no_dnc_masking,
        erased=not cfg.no_dnc_erasure,
        sharpened=not cfg.no_dnc_sharpening,
    )
    return DNC(cfg.encoder_embed_dim, cfg.encoder_hidden_size, memory)


_KINDS: dict[str, Any] = {"lstm": _build_lstm, "dnc": _build_dnc}
