"""A language model refuses other tasks, whatever plugins register for it."""

from __future__ import annotations

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models import ARCH_MODEL_INV_REGISTRY as NAMES

from sut_fairseq.errors import InputError
from sut_fairseq.models.architectures import register_architecture

MODEL = "universal_transformer_lm"


def test_an_architecture_of_a_plugin_keeps_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY):
        monkeypatch.setitem(registry, MODEL, registry[MODEL])
        monkeypatch.delitem(registry, "own_lm", raising=False)
    monkeypatch.setitem(NAMES, MODEL, list(NAMES[MODEL]))
    register_architecture(MODEL, "own_lm", {"decoder_layers": 3})
    try:
        for name in ("own_lm", MODEL):
            for task in ("translation", "masked_lm", "denoising"):
                with pytest.raises(InputError, match=f"--task language_modeling, not {task}"):
                    ARCH_CONFIG_REGISTRY[name](
                        Namespace(arch=name, task=task, tokens_per_sample=16)
                    )
            for task in ("language_modeling", "multilingual_language_modeling"):
                ARCH_CONFIG_REGISTRY[name](Namespace(arch=name, task=task))
    finally:
        for registry in (ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY):
            registry.pop("own_lm")
