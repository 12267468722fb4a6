"""Decoder-only language models: a Universal Transformer's depth loop without an encoder."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Optional

import numpy
from fairseq.data import token_block_dataset
from fairseq.models import FairseqLanguageModel, register_model
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.multilingual_language_modeling import MultilingualLanguageModelingTask
from omegaconf import II
from torch import Tensor, nn

from sut_fairseq._process import prepare_process
from sut_fairseq.errors import InputError
from sut_fairseq.models._assembly import build_stack, decoder_embed_dim
from sut_fairseq.models._config import UniversalTransformerConfig
from sut_fairseq.models._embedding import embed, refuse_float16_on_cpu, ties_output, token_embedding
from sut_fairseq.models._given import complete, log_depth, warn_of_unread
from sut_fairseq.models._pretrained import Pretrained
from sut_fairseq.models.architectures import register_architecture
from sut_fairseq.models.universal_transformer import UniversalTransformerDecoder
from sut_fairseq.modules.observer import Observer
from sut_fairseq.modules.trained_words import keep_words

# fairseq knows `Optional[int]` but not `int | None`.
# ruff: noqa: UP007, UP045


def _let_fairseq_read_sentences() -> None:
    """Give one module of fairseq an attribute of numpy that numpy 2 has removed.

    Language models need it to read single sentences: with `--sample-break-mode eos`, and in
    fairseq-interactive.
    """
    if not hasattr(numpy, "compat"):
        found = {**vars(numpy), "compat": SimpleNamespace(long=numpy.int64)}
        token_block_dataset.np = SimpleNamespace(**found)


_let_fairseq_read_sentences()


@dataclass
class LanguageModelConfig(UniversalTransformerConfig):
    """The options of a decoder.

    Its own sizes (`decoder_embed_dim`, `decoder_ffn_embed_dim`, `decoder_attention_heads`) default
    to the encoder's; other options of an encoder have no effect, and the log says so.
    """

    max_target_positions: Optional[int] = field(  # type: ignore[assignment]
        default=II("task.max_target_positions"),
        metadata={"help": "greatest number of tokens in a text (default: --tokens-per-sample)"},
    )
    tokens_per_sample: int = II("task.tokens_per_sample")


def _check_targets(task: FairseqTask) -> None:
    """Refuse what a decoder that sees only earlier tokens cannot predict.

    Raises:
        InputError: with `--self-target` or `--past-target`.
    """
    wanted = set(getattr(task, "targets", None) or ["future"]) - {"future"}
    if wanted:
        flags = " and ".join(f"--{name}-target" for name in sorted(wanted))
        raise InputError(f"this model predicts the next token of a text only: leave {flags} out.")


@register_model("universal_transformer_lm", dataclass=LanguageModelConfig)
class UniversalTransformerLanguageModel(Pretrained, FairseqLanguageModel):
    """A language model with any kinds of block, attention, feed-forward layer and halting.

    For fairseq's task `language_modeling`. `forward` returns `(scores, extra)`: scores
    `(batch, length, vocabulary)` of the next token; `extra["routing"]` and `extra["halting"]` as in
    `UniversalTransformerModel`, of the decoder.
    """

    @classmethod
    def build_model(
        cls, cfg: LanguageModelConfig, task: FairseqTask
    ) -> "UniversalTransformerLanguageModel":
        """Build the model that the options describe.

        Raises:
            InputError: if an option has a value that is not allowed.
        """
        prepare_process()
        _check_targets(task)
        cfg = complete(LanguageModelConfig, cfg)
        source, target = task.source_dictionary, task.target_dictionary
        embed_dim = decoder_embed_dim(cfg)
        stack = build_stack(cfg, "decoder", reads_encoder=False)
        tokens = token_embedding(source, embed_dim)
        projection = nn.Linear(embed_dim, len(target), bias=False)
        if not ties_output(cfg):
            nn.init.normal_(projection.weight, std=embed_dim**-0.5)
        elif len(source) != len(target):
            given = "share_decoder_input_output_embed"
            if cfg.share_all_embeddings:
                given = "share_all_embeddings"
            raise InputError(
                f"`{given}` needs one dictionary, but --output-dictionary-size makes another one: "
                "train with --separate-embeddings."
            )
        else:
            projection.weight = tokens.weight
        longest = cfg.max_target_positions or cfg.tokens_per_sample
        embedding = embed(cfg, tokens, longest, cfg.dropout)
        log_depth(cfg, "decoder")
        warn_of_unread(cfg)
        model = cls(UniversalTransformerDecoder(target, embedding, stack, projection, longest))
        keep_words(model, source.symbols, target.symbols)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        observers: Optional[Mapping[str, Observer]] = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Predict the token after each one.

        Args:
            src_tokens: `(batch, length)`, padded on the right.
            src_lengths: not needed; fairseq passes it.
            observers: the one named "decoder" is shown what the stack computes.
        """
        refuse_float16_on_cpu(self.decoder.embedding.tokens.weight)
        return self.decoder(src_tokens, observers=observers)


def _check_task(arguments: Namespace) -> None:
    """Refuse the command line of a task that models no language from left to right.

    Of other authors' tasks we know only that they need a length of texts.
    """
    if not hasattr(arguments, "task"):
        return
    kind = TASK_REGISTRY.get(arguments.task, FairseqTask)
    fits = issubclass(kind, (LanguageModelingTask, MultilingualLanguageModelingTask))
    others = not kind.__module__.startswith("fairseq.") and hasattr(arguments, "tokens_per_sample")
    if not fits and not others:
        raise InputError(
            f"--arch {arguments.arch} is a language model: it needs --task language_modeling, not "
            f"{arguments.task}."
        )


# 6 shared steps (COMP C.7), pre-norm as in the authors' code; the two differ only in attention.
_SHARED_STEPS = dict(
    decoder_normalize_before=True,
    decoder_embed_dim=512,
    decoder_ffn_embed_dim=2048,
    decoder_attention_heads=8,
    decoder_layers=6,
    attention_positions="none",
    activation_fn="relu",
    dropout=0.1,
    share_decoder_input_output_embed=True,
)
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "ut_lm": _SHARED_STEPS,
    "compositional_lm": dict(
        _SHARED_STEPS,
        attention_kind="compositional",
        attention_retrievals=8,
        attention_retrieval_dim=32,
    ),
}
for _name, _options in LANGUAGE_MODELS.items():
    register_architecture("universal_transformer_lm", _name, _options, _check_task)
