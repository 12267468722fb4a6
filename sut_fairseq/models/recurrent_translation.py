"""A recurrent encoder-decoder as a fairseq translation model (LOC 6.3)."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time, and
# knows `Optional[int]` but not `int | None`.
# ruff: noqa: UP007, UP045

import logging
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.models import FairseqEncoderDecoderModel, register_model
from fairseq.tasks import FairseqTask

from sut_fairseq._process import check_target_padding, prepare_process
from sut_fairseq.errors import check_choice
from sut_fairseq.models._assembly import check_translates, decoder_embed_dim
from sut_fairseq.models._attenders import ATTENDERS, CONTENT_ATTENDERS
from sut_fairseq.models._axis import Axis, Kind
from sut_fairseq.models._config import TokenOptions
from sut_fairseq.models._embedding import Embedding, ties_output, token_embeddings
from sut_fairseq.models._given import complete, warn_of_unread
from sut_fairseq.models._pretrained import Pretrained
from sut_fairseq.models._recurrent import RecurrentDecoder, RecurrentEncoder
from sut_fairseq.modules.recurrent.gru import AttendAfter, AttendBefore, GRUEncoder
from sut_fairseq.modules.recurrent.stop_gate import StopGate
from sut_fairseq.modules.trained_words import keep_words

logger = logging.getLogger(__name__)

DECODERS: Axis[type[AttendAfter] | type[AttendBefore]] = Axis(
    "when the decoder attends",
    {
        "after": Kind("with its new state; what it finds joins the output", AttendAfter),
        "before": Kind("with its last state; what it finds is read with the token", AttendBefore),
    },
)


@dataclass
class RecurrentTranslationConfig(TokenOptions):
    """Options of the recurrent encoder-decoder; the defaults are the paper's."""

    encoder_embed_dim: int = field(
        default=64, metadata={"help": "size of a source word's embedding"}
    )
    decoder_embed_dim: Optional[int] = field(
        default=None,
        metadata={"help": "size of a target word's embedding (default: the encoder's)"},
    )
    encoder_hidden_size: int = field(
        default=128, metadata={"help": "size of a state, of the encoder and of the decoder"}
    )
    dropout: float = field(
        default=0.5, metadata={"help": "of the state that the decoder begins with (bottleneck)"}
    )
    attender: str = field(default="mix", metadata={"help": ATTENDERS.help})
    mix_content: str = field(default="scaled-dot", metadata={"help": CONTENT_ATTENDERS.help})
    location_hidden_size: int = field(
        default=64, metadata={"help": "state of the GRU that moves the gaze (location, mix)"}
    )
    attend: ChoiceEnum(list(DECODERS)) = field(  # type: ignore[valid-type]
        default="after", metadata={"help": DECODERS.help}
    )
    stop_gate: bool = field(
        default=False,
        metadata={
            "help": "the end token's probability comes from the attention on the last source words "
            "alone, so that the model cannot learn to count"
        },
    )
    boundary_tokens: bool = field(
        default=False, metadata={"help": "read the source's end token too, not words alone"}
    )


@register_model("recurrent_translation", dataclass=RecurrentTranslationConfig)
class RecurrentTranslationModel(Pretrained, FairseqEncoderDecoderModel):
    """GRU encoder and decoder with an attender (LOC Figure 2).

    `forward` returns `(scores, extra)`: scores `(batch, tgt_len, vocabulary)`; `extra["attn"]` the
    attention weights, `[(batch, tgt_len, src_len)]`.
    """

    @classmethod
    def build_model(
        cls, cfg: RecurrentTranslationConfig, task: FairseqTask
    ) -> "RecurrentTranslationModel":
        """Build the model that the options describe.

        Raises:
            InputError: if an option has a value that is not allowed, or for a task of another kind.
        """
        prepare_process()
        check_translates(task)
        check_target_padding(task, "the decoder reads targets from their first column on")
        cfg = complete(RecurrentTranslationConfig, cfg)
        target_dim, hidden_dim = decoder_embed_dim(cfg), cfg.encoder_hidden_size
        attender = ATTENDERS.builder("attender", cfg.attender)(cfg)
        check_choice("attend", str(cfg.attend), DECODERS)  # no plugin can add one
        build_decoder = DECODERS.builder("attend", cfg.attend)
        source, target = task.source_dictionary, task.target_dictionary
        output_dim = target_dim if ties_output(cfg) else hidden_dim
        source_tokens, target_tokens, projection = token_embeddings(
            cfg, source, target, target_dim=target_dim, output_dim=output_dim
        )

        encoder = RecurrentEncoder(
            source,
            Embedding(source_tokens),
            GRUEncoder(cfg.encoder_embed_dim, hidden_dim),
            boundary_tokens=cfg.boundary_tokens,
            max_positions=cfg.max_source_positions,
        )
        decoder = RecurrentDecoder(
            target,
            Embedding(target_tokens),
            build_decoder(attender, target_dim, hidden_dim, output_dim, dropout=cfg.dropout),
            projection,
            StopGate(target.eos()) if cfg.stop_gate else None,
            cfg.max_target_positions,
        )
        # fairseq ignores an unknown key in --model-overrides: show what took effect.
        logger.info(
            "attender: %s; attends %s the state's update; stop gate: %s",
            cfg.attender,
            cfg.attend,
            cfg.stop_gate,
        )
        warn_of_unread(cfg)
        model = cls(encoder, decoder)
        keep_words(model, source.symbols, target.symbols)
        return model
