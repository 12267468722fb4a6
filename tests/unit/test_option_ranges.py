"""Sizes and dropouts out of range are refused in a sentence before anything is built."""

from __future__ import annotations

import math
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

import sut_fairseq  # noqa: F401  (registers the models)
from sut_fairseq.errors import InputError
from sut_fairseq.models._given import complete
from tests.models import small_model

OURS = sorted(
    name for name, model in MODEL_REGISTRY.items() if model.__module__.startswith("sut_fairseq.")
)
ENDINGS = ("dim", "size", "positions")
SIZE = ("at least 1", (0, -8)), ("a whole number", ("8", True, 1.5))
DROPOUT = ("at least 0 and less than 1", (-0.1, 1.5, 1, math.nan)), ("a number", ("0.1", True))


TYPES = (
    (bool, "True or False", ("False", 0)),
    (int, "a whole number", ("2", 2.0, True)),
    (float, "a number", ("0.1", True)),
)


@pytest.mark.parametrize("model", OURS)
def test_values_of_other_types(model: str) -> None:
    """fairseq passes on whatever --model-overrides has: 'False' would count as true."""
    kind: Any = MODEL_DATACLASS_REGISTRY[model]
    checked = set()
    for option in fields(kind):
        for of, allowed, values in TYPES:
            if of not in (option.type, *get_args(option.type)):
                continue
            checked.add(option.name)
            # An option that may be left open takes None.
            required = type(None) not in get_args(option.type)
            for value in (*values, *[None] * required):
                with pytest.raises(InputError) as error:
                    # A language model's length refers to its task.
                    given = {"max_target_positions": 64, option.name: value}
                    complete(kind, SimpleNamespace(**given))
                sentence = f"`{option.name}` must be {allowed}, but is {value!r} instead."
                assert str(error.value) == sentence
    assert len(checked) > 5


@pytest.mark.parametrize("model", OURS)
def test_all_sizes_and_dropouts_are_checked(model: str) -> None:
    kind: Any = MODEL_DATACLASS_REGISTRY[model]
    task = SimpleNamespace(num_features=4)  # a check that came after building would need more
    types = {option.name: str(option.type) for option in fields(kind)}
    sizes = {name for name, of in types.items() if "int" in of and name.endswith(ENDINGS)}
    dropouts = {name for name, of in types.items() if "float" in of and "dropout" in name}
    assert sizes and (dropouts or model == "contextual_retrieval")
    for name in sizes | dropouts:
        for allowed, values in SIZE if name in sizes else DROPOUT:
            for value in values:
                config = kind()
                if hasattr(config, "max_target_positions"):
                    config.max_target_positions = 64  # a language model's refers to its task
                setattr(config, name, value)
                with pytest.raises(InputError) as error:
                    MODEL_REGISTRY[model].build_model(config, task)
                shown = repr(value) if allowed.startswith("a ") else value
                sentence = f"`{name}` must be {allowed}, but is {shown} instead."
                assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attention_window": -1}, "`attention_window` must be at least 0, but is -1 instead."),
        (
            {"encoder_attention_heads": 0},
            "`encoder_attention_heads` must be at least 1, but is 0 instead.",
        ),
        (
            {"decoder_attention_heads": 0, "attention_head_dim": 4},
            "`decoder_attention_heads` must be at least 1, but is 0 instead.",
        ),
        (
            {"encoder_block": "data-router", "encoder_normalize_before": True},
            "`encoder_normalize_before` must be off with a data-router block, which has its norms "
            "where they are, but is True instead.",
        ),
        (
            {"ffn_experts": 2, "expert_backend": "fast"},
            "`expert_backend` must be one of auto, loop, grouped, but is fast instead.",
        ),
        (
            {"joined": True, "share_all_embeddings": True, "decoder_embed_dim": 24},
            "`share_all_embeddings` needs equal sizes, but `encoder_embed_dim` is 16 and "
            "`decoder_embed_dim` is 24.",
        ),
        (
            {"share_all_embeddings": True},
            "`share_all_embeddings` needs one dictionary for both languages, but the data has two: "
            "preprocess with --joined-dictionary (parallel_text.sh: --joined), or train with "
            "--separate-embeddings.",
        ),
    ],
)
def test_what_the_parts_of_a_model_refuse(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        small_model(**options)
    assert str(error.value) == sentence
