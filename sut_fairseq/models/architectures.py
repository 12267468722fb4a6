"""Named architectures of translation models: presets of the papers, and small ones."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    register_model_architecture,
)

from sut_fairseq._excepthook import is_hydra
from sut_fairseq._process import prepare_process
from sut_fairseq._training_options import check_length, check_precision
from sut_fairseq.errors import InputError

# Imported so that the model that the architectures belong to is registered first.
from sut_fairseq.models import universal_transformer  # noqa: F401

Check = Callable[[Namespace], None]
_CHECKS: dict[str, Check] = {}  # by model

# Of fairseq, for adaptive softmax, decoders that fill in all words at once, and encoders.
_OTHER_CRITERIONS = (
    *("adaptive_loss", "nat_loss", "masked_lm", "legacy_masked_lm_loss", "sentence_prediction"),
    *("sentence_prediction_adapters", "sentence_ranking", "ctc"),
)

_WITH_HALTING = dict(encoder_halting="stick-breaking", decoder_halting="stick-breaking")

_SUT_WMT = dict(
    **_WITH_HALTING,
    share_all_embeddings=True,
    encoder_embed_dim=512,
    encoder_layers=6,
    decoder_layers=6,
    encoder_attention_heads=4,
    attention_head_dim=64,
    attention_top_k=4,
    attention_window=64,
    encoder_ffn_embed_dim=512,
    ffn_top_k=4,
    dropout=0.2,
    attention_dropout=0.2,
    activation_dropout=0.1,
    router_dropout=0.2,
)

_UT_WMT = dict(
    _SUT_WMT, attention_top_k=1, ffn_top_k=1, attention_experts=1, ffn_experts=1, router_dropout=0.0
)

_FORMAL = dict(
    no_token_positional_embeddings=True,
    encoder_embed_dim=512,
    attention_window=1,
    dropout=0.5,
    attention_dropout=0.2,
    activation_dropout=0.5,
    router_dropout=0.1,
)

_UT_CFQ = dict(
    _FORMAL,
    encoder_layers=8,
    decoder_layers=8,
    encoder_attention_heads=8,
    attention_head_dim=64,
    encoder_ffn_embed_dim=1024,
)

# A Neural Data Router (NDR 2).
DATA_ROUTER = dict(
    no_token_positional_embeddings=True,
    encoder_block="data-router",
    decoder_block="data-router",
    attention_distribution="geometric",
    attention_positions="direction",
    attention_query_dropout=0.1,
    copy_gate_dropout=0.1,
    activation_fn="relu",
)

_TINY = dict(
    **_WITH_HALTING,
    encoder_normalize_before=True,
    decoder_normalize_before=True,
    encoder_embed_dim=128,
    encoder_layers=3,
    decoder_layers=3,
    attention_head_dim=16,
    attention_window=16,
    dropout=0.0,
)

# A Universal Transformer on SCAN's output-length cut-offs (Mittal et al., 2022, C.6).
_LENGTH_CUT_OFFS = dict(
    attention_positions="none",
    encoder_embed_dim=128,
    encoder_layers=3,
    decoder_layers=3,
    encoder_attention_heads=8,
    encoder_ffn_embed_dim=256,
    activation_fn="relu",
    dropout=0.1,
)

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "sut_base": dict(_SUT_WMT, attention_experts=24, ffn_experts=24),
    "sut_big": dict(_SUT_WMT, attention_experts=48, ffn_experts=48),
    "ut_base": dict(
        _UT_WMT, encoder_embed_dim=960, encoder_attention_heads=15, encoder_ffn_embed_dim=3840
    ),
    "ut_big": dict(
        _UT_WMT, encoder_embed_dim=1344, encoder_attention_heads=21, encoder_ffn_embed_dim=5376
    ),
    "sut_logical_inference": dict(
        _FORMAL,
        **_WITH_HALTING,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=2,
        attention_head_dim=32,
        attention_experts=12,
        attention_top_k=4,
        encoder_ffn_embed_dim=128,
        ffn_experts=12,
        ffn_top_k=4,
    ),
    "ut_cfq": dict(_UT_CFQ, **_WITH_HALTING),
    "ut_cfq_t5": dict(
        _UT_CFQ,
        attention_positions="buckets",
        encoder_normalize_before=True,
        decoder_normalize_before=True,
    ),
    "sut_tiny": dict(
        _TINY,
        encoder_attention_heads=4,
        attention_experts=4,
        attention_top_k=2,
        encoder_ffn_embed_dim=128,
        ffn_experts=4,
        ffn_top_k=2,
    ),
    # About as many parameters as sut_tiny, all of them used for each token.
    "ut_tiny": dict(_TINY, encoder_attention_heads=12, encoder_ffn_embed_dim=512),
    "ut_scan": _LENGTH_CUT_OFFS,
    "compositional_scan": dict(
        _LENGTH_CUT_OFFS,
        attention_kind="compositional",
        attention_retrievals=4,
        attention_retrieval_dim=32,
    ),
    # Left as future work by the Neural Data Router's authors: both sides route.
    "ndr_seq2seq": dict(
        DATA_ROUTER,
        encoder_embed_dim=256,
        encoder_layers=10,
        decoder_layers=10,
        encoder_attention_heads=4,
        encoder_ffn_embed_dim=1024,
        dropout=0.1,
        activation_dropout=0.1,
    ),
    "ndr_seq2seq_tiny": dict(
        DATA_ROUTER,
        encoder_embed_dim=128,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=4,
        encoder_ffn_embed_dim=256,
        dropout=0.0,
    ),
}


def _settle_precision(arguments: Namespace) -> None:
    """Refuse options for precision that fairseq-train cannot obey, and let --bf16 need no TPU.

    Meant for the command line of fairseq-train, which has these flags; fairseq also calls this with
    the options of a model, which do not. In fairseq's parser --bf16 implies --tpu, for which the
    trainer then looks for torch_xla; everything else that it does with --bf16 (parameters in
    bfloat16, copies of them in float32 in the optimizer, no loss scaling) needs no TPU.
    """
    check_precision(arguments, arguments)
    if getattr(arguments, "tpu", False) and find_spec("torch_xla") is None:
        if not getattr(arguments, "bf16", False) or "--tpu" in sys.argv[1:]:
            raise InputError(
                "--tpu needs torch_xla, which is not installed: leave it out to train on a GPU or "
                "a CPU."
            )
        arguments.tpu = False


def _refuse_other_kinds(arguments: Namespace) -> None:
    """Refuse a task and criterions of fairseq that are for other kinds of models than ours."""
    if getattr(arguments, "task", None) == "multilingual_translation":
        raise InputError(
            "--task multilingual_translation needs models of several parts: take --task "
            "translation_multi_simple_epoch, which trains one model for all pairs of languages."
        )
    criterion = getattr(arguments, "criterion", None)
    if criterion in _OTHER_CRITERIONS:
        raise InputError(
            f"--criterion {criterion} is for other kinds of models: take "
            "cross_entropy_with_auxiliary, or for classifiers classification."
        )


def _check_criterion(arguments: Namespace) -> None:
    """Refuse a criterion that trains attention weights, of which each step has its own."""
    criterion = getattr(arguments, "criterion", None)
    if criterion == "label_smoothed_cross_entropy_with_alignment":
        raise InputError(
            f"--criterion {criterion} trains attention weights, which this model does not report "
            "in training: take another criterion, or a recurrent_translation model."
        )


def register_architecture(
    model: str, name: str, options: dict[str, Any], check: Check | None = None
) -> None:
    """Register `--arch NAME`: a model with other defaults for some options.

    Args:
        model: what `register_model` calls it.
        name: of the architecture.
        options: defaults by option.
        check: refuses the rest of a command line with an `InputError`; for the model itself and all
            of its architectures too.
    """
    if check is not None:
        _CHECKS[model] = check
    register_model_architecture(model, name)(partial(_fill_in, model, options))
    # fairseq has registered the model's own name with a function that does nothing.
    ARCH_CONFIG_REGISTRY[model] = partial(_fill_in, model, {})


def _fill_in(model: str, options: dict[str, Any], arguments: Namespace) -> None:
    prepare_process(arguments)
    if options and is_hydra():
        # All options already have the model's values: an architecture would set none.
        name = arguments._name
        raise InputError(
            f"model._name must be the name of a model, here {ARCH_MODEL_NAME_REGISTRY[name]}, and "
            f"is that of an architecture, {name}: give the options that `sut-options {name}` shows "
            "instead, as docs/hydra_example.yaml does."
        )
    _refuse_other_kinds(arguments)
    if model in _CHECKS:
        _CHECKS[model](arguments)
    check_length(arguments)
    _settle_precision(arguments)
    for option, value in options.items():
        if not hasattr(arguments, option):
            setattr(arguments, option, value)


for _name, _options in ARCHITECTURES.items():
    register_architecture("universal_transformer", _name, _options, _check_criterion)
