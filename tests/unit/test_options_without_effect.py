"""Options that a command gives and that the model has no use for are warned of."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY

import sut_fairseq  # noqa: F401  (registers the models)
from sut_fairseq.models.kinds import AXES, register_kind

WORDS = Dictionary()
TASK = SimpleNamespace(
    source_dictionary=WORDS, target_dictionary=WORDS, num_labels=2, num_features=3
)


def build(arch: str, **options: Any) -> None:
    """Build the model of an architecture, or one without, with these options."""
    arguments = Namespace(**{"max_target_positions": 9, "tokens_per_sample": 9, **options})
    ARCH_CONFIG_REGISTRY[arch](arguments)
    with torch.device("meta"):
        {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}[arch].build_model(arguments, TASK)


@pytest.mark.parametrize(
    ("arch", "options", "warned"),
    [
        ("sut_tiny", dict(attention_window=3, alpha_threshold=0.9, router_dropout=0.1), []),
        ("ut_tiny", dict(router_dropout=0.1), ["router_dropout"]),
        ("ut_tiny", dict(attention_positions="buckets", attention_window=3), ["attention_window"]),
        ("ut_tiny", dict(halting_epsilon=0.1), ["halting_epsilon"]),
        ("ut_tiny", dict(decoder_halting="act-ut", halting_epsilon=0.1), []),
        ("ut_cfq", dict(encoder_halting="none", alpha_threshold=0.9), []),
        (
            "ut_cfq",
            dict(encoder_halting="none", decoder_halting="none", alpha_threshold=0.9),
            ["alpha_threshold"],
        ),
        ("sut_classifier_tiny", dict(separate_embeddings=True), []),
        ("sut_classifier_tiny", dict(decoder_layers=9), ["decoder_layers"]),
        ("ut_lm", dict(encoder_embed_dim=64, tokens_per_sample=7), ["encoder_embed_dim"]),
        ("universal_transformer_lm", dict(encoder_embed_dim=64), []),
        (
            "contextual_retrieval",
            dict(attention_experts=2, attention_biases="none", router_dropout=0.1),
            [],
        ),
        (
            "contextual_retrieval_multihead",
            dict(decoder_attention_heads=4, attention_retrievals=4),
            ["attention_retrievals", "decoder_attention_heads"],
        ),
        ("contextual_retrieval_compositional", dict(attention_retrievals=4), []),
        ("location_additive", dict(location_hidden_size=8), ["location_hidden_size"]),
        ("location_mix", dict(mix_content="additive", location_hidden_size=8), []),
        ("ndr_ctl_lstm", dict(dnc_cells=8), ["dnc_cells"]),
        ("ndr_ctl_dnc", dict(dnc_cells=8), []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["fairseq-train", "fairseq-generate"])
def test_given_in_a_command(
    command: str,
    arch: str,
    options: dict[str, Any],
    warned: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As flags of a training, or as overrides; not what an architecture sets."""
    flags = {f"--{name.replace('_', '-')}={value}" for name, value in options.items()}
    overrides = ["--model-overrides", repr(options)]
    given = [*flags] if command == "fairseq-train" else overrides
    monkeypatch.setattr(sys, "argv", [command, *given])
    build(arch, **options)
    sentence = "--{} has no effect on this model with its other options"
    flags_warned = [name.replace("_", "-") for name in warned]
    found = [one.getMessage() for one in caplog.records if "no effect" in one.getMessage()]
    assert sorted(found) == [sentence.format(name) for name in flags_warned]


def test_given_to_hydra(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """All options have values there: what differs from its default was given."""
    monkeypatch.setattr(sys, "argv", ["fairseq-hydra-train", "--config-name", "mine"])
    options = dict(_name="contextual_retrieval", attention_window=64, attention_buckets=3)
    build("contextual_retrieval", **options)
    (record,) = caplog.records
    assert record.getMessage().startswith("--attention-buckets has no effect")


def test_a_kind_of_another_package(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reads has an effect; it may copy the options, as they are a dataclass."""
    content = AXES["attention-positions"].kinds["none"].build
    monkeypatch.setattr(AXES["attention-positions"], "kinds", {})
    register_kind(
        "attention-positions", "own", "its own",
        lambda config, side: content(replace(config), side),
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "--attention-buckets", "3"])
    build("contextual_retrieval", attention_positions="own", attention_buckets=3)
    assert not caplog.records
