"""The encoder of a Universal Transformer or one of its relatives as a classifier."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from sut_fairseq._process import prepare_process
from sut_fairseq.errors import check, check_choice
from sut_fairseq.models._assembly import build_stack, check_looks_nowhere
from sut_fairseq.models._classifier import Classifier, num_labels
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models._embedding import embed, token_embedding
from sut_fairseq.models._given import complete, log_depth, warn_of_unread
from sut_fairseq.models.universal_transformer import UniversalTransformerEncoder
from sut_fairseq.modules.observer import Observer

# fairseq knows `Optional[int]` but not `int | None`.
# ruff: noqa: UP007, UP045

_READOUTS = ("first", "last")


@dataclass
class EncoderClassifierConfig(UniversalTransformerConfig):
    """Options of the encoder; those of a decoder exist but are unused."""

    readout: ChoiceEnum(list(_READOUTS)) = field(  # type: ignore[valid-type]
        default="last", metadata={"help": "column that the label is read from: begin or end token"}
    )
    embedding_dropout: Optional[float] = field(
        default=None, metadata={"help": "dropout of embedded words (default: --dropout)"}
    )
    training_steps_beyond_length: Optional[int] = field(
        default=None,
        metadata={
            "help": "in training, run at most this many steps more than the longest source of the "
            "batch has tokens, begin and end included, or with --cuda-graphs than it is wide "
            "(default: --encoder-layers steps always)"
        },
    )


@register_model("encoder_classifier", dataclass=EncoderClassifierConfig)
class EncoderClassifier(Classifier):
    """Embedding, stack, and one linear layer on the first or the last column.

    `forward` returns `(scores, extra)`: scores `(batch, num_labels)`; `extra["routing"]` and
    `extra["halting"]` as in `UniversalTransformerModel`, of the encoder.
    """

    def __init__(
        self,
        encoder: UniversalTransformerEncoder,
        output_projection: nn.Linear,
        *,
        readout: str,
        training_steps_beyond_length: Optional[int],
        max_positions: tuple[int, int],
    ) -> None:
        super().__init__(max_positions)
        check_choice("readout", readout, _READOUTS)
        beyond = training_steps_beyond_length
        check(beyond is None or beyond >= 0, "training_steps_beyond_length", "at least 0", beyond)
        self.encoder = encoder
        self.output_projection = output_projection
        self.readout = readout
        self.training_steps_beyond_length = beyond

    @classmethod
    def build_model(cls, cfg: EncoderClassifierConfig, task: FairseqTask) -> "EncoderClassifier":
        """Build the model that the options describe.

        Raises:
            InputError: if an option has a value that is not allowed.
        """
        prepare_process()
        cfg = complete(EncoderClassifierConfig, cfg)
        size = num_labels(task)
        embedding = embed(
            cfg,
            token_embedding(task.source_dictionary, cfg.encoder_embed_dim),
            cfg.max_source_positions,
            cfg.dropout if cfg.embedding_dropout is None else cfg.embedding_dropout,
        )
        check_looks_nowhere(cfg)
        stack = build_stack(cfg, "encoder")
        log_depth(cfg, "encoder", readout=cfg.readout)
        model = cls(
            UniversalTransformerEncoder(
                task.source_dictionary, embedding, stack, cfg.max_source_positions
            ),
            nn.Linear(cfg.encoder_embed_dim, size),
            readout=str(cfg.readout),
            training_steps_beyond_length=cfg.training_steps_beyond_length,
            max_positions=(cfg.max_source_positions, cfg.max_target_positions),
        )
        warn_of_unread(cfg)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        prev_output_tokens: Optional[Tensor] = None,
        observers: Optional[Mapping[str, Observer]] = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Classify.

        Args:
            src_tokens: `(batch, src_len)`, padded on either side.
            src_lengths, prev_output_tokens: not needed; fairseq passes them.
            observers: the one named "encoder" is shown what the stack computes.

        Returns:
            scores `(batch, num_labels)` and the statistics.
        """
        real = src_tokens.ne(self.encoder.dictionary.pad())
        steps = self._num_steps(real)
        encoded = self.encoder(src_tokens, observers=observers, num_steps=steps)
        # argmax finds the first of the greatest values.
        ends = (real if self.readout == "first" else real.cumsum(dim=1)).int().argmax(dim=1)
        column = encoded["states"][torch.arange(len(ends), device=ends.device), ends]
        statistics = {kind: encoded[kind] for kind in ("routing", "halting")}
        return self.output_projection(column), statistics

    def _num_steps(self, real: Tensor) -> Optional[int]:
        """Number of steps of a batch; None: all of them. `real` is False at padding."""
        if not self.training or self.training_steps_beyond_length is None:
            return None
        if real.is_cuda and torch.cuda.is_current_stream_capturing():
            longest = real.shape[1]  # a CUDA graph has one number of steps for each width
        else:
            longest = int(real.sum(dim=1).max())
        return min(self.encoder.stack.num_steps, longest + self.training_steps_beyond_length)
