"""Recurrent classifiers: which tokens they read, their options and dropouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sut_fairseq.errors import InputError
from sut_fairseq.models.recurrent_classifier import RecurrentClassifier, RecurrentClassifierConfig
from tests.models import classification_task as task
from tests.unit.test_sequence_classification import WORDS, sources


def recurrent(**options: Any) -> RecurrentClassifier:
    torch.manual_seed(3)
    sizes = dict(encoder_embed_dim=6, encoder_hidden_size=4, dnc_cells=3, dnc_read_heads=2)
    config = replace(RecurrentClassifierConfig(), **{**sizes, **options})
    return RecurrentClassifier.build_model(config, task()).double().eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoder_bidirectional": True, "encoder_layers": 2},
        {"recurrent_kind": "dnc"},
        {"recurrent_kind": "dnc", "dnc_word_size": 5, "boundary_tokens": True},
    ],
    ids=["lstm", "bilstm", "dnc", "ends too"],
)
def test_recurrent_classifiers_read_words_alone(options: dict[str, Any]) -> None:
    """Neither padding nor batch-mates count, and begin and end only where they are asked for."""
    model = recurrent(**options)
    tokens = sources()
    tokens[1, -2:] = torch.tensor([5, WORDS.eos()])  # a word, instead of begin
    scores, extra = model(tokens)
    assert scores.shape == (3, 5) and extra == {}
    turned = torch.stack([row.roll(-int(row.eq(WORDS.pad()).sum())) for row in tokens])
    torch.testing.assert_close(model(turned)[0], scores, rtol=1e-12, atol=1e-12)
    for row in range(3):
        alone = tokens[row][tokens[row].ne(WORDS.pad())].unsqueeze(0)
        torch.testing.assert_close(model(alone)[0][0], scores[row], rtol=1e-12, atol=1e-12)
    without = tokens.masked_fill(tokens.eq(WORDS.eos()) | tokens.eq(WORDS.bos()), WORDS.pad())
    same = torch.allclose(model(without)[0], scores)
    assert same != options.get("boundary_tokens", False)


@pytest.mark.parametrize("layers", [1, 2])
def test_dropouts_of_recurrent_classifiers(layers: int) -> None:
    """Of embedded words, of the read-out, and between layers if there are several."""
    model = recurrent(dropout=0.5, encoder_layers=layers, boundary_tokens=True).train()
    seen = []
    model.dropout.register_forward_hook(lambda _, inputs, output: seen.append(output.shape))
    model(sources())
    assert [tuple(shape) for shape in seen] == [(3, 6, 6), (3, 4)]
    model.dropout.p = 0.0  # what remains is between the layers
    assert torch.equal(model(sources())[0], model(sources())[0]) == (layers == 1)


def test_options_of_the_dnc_reach_it() -> None:
    whole = recurrent(recurrent_kind="dnc").reader.memory
    assert (whole.masked, whole.erased, whole.sharpened, whole.word_dim) == (True, True, True, 4)
    plain = dict(no_dnc_masking=True, no_dnc_erasure=True, no_dnc_sharpening=True)
    memory = recurrent(recurrent_kind="dnc", **plain).reader.memory
    assert (memory.masked, memory.erased, memory.sharpened) == (False, False, False)


def test_nothing_to_read() -> None:
    with pytest.raises(InputError, match="take empty lines out of the data, or train with"):
        recurrent()(sources())  # the second sentence is begin and end alone
    assert recurrent(boundary_tokens=True)(sources())[0].shape == (3, 5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recurrent_kind": "gru"}, "`recurrent_kind` must be one of lstm, dnc, but is gru"),
        ({"encoder_hidden_size": 0}, "`encoder_hidden_size` must be at least 1, but is 0"),
        ({"recurrent_kind": "dnc", "dnc_cells": 0}, "`dnc_cells` must be at least 1, but is 0"),
        ({"recurrent_kind": "dnc", "encoder_layers": 2}, "has one layer and one direction"),
    ],
)
def test_bad_recurrent_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        recurrent(**options)
