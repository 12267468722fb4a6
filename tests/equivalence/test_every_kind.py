"""What holds for a model of every kind in the lists of `_kinds`, those to come included."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.equivalence.test_incremental import (
    assert_beams_equal_full_passes,
    assert_incremental_equals_full,
)
from tests.equivalence.test_model import assert_padding_is_ignored, compare_alone_and_in_batches
from tests.models import batch, configurations, padding, small_model

# Enough steps for tokens to halt at different ones.
STEPS = dict(encoder_layers=2, decoder_layers=3)
CONFIGURATIONS = {name: {**STEPS, **options} for name, options in configurations().items()}
EVERY_KIND = pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)


@EVERY_KIND
def test_one_token_at_a_time(options: dict[str, Any]) -> None:
    assert_incremental_equals_full(small_model(**options), batch(), 1e-10)


@EVERY_KIND
def test_under_beam_reordering(options: dict[str, Any]) -> None:
    assert_beams_equal_full_passes(small_model(**options))


@EVERY_KIND
@torch.no_grad()
def test_a_sentence_alone_and_in_any_batch(options: dict[str, Any]) -> None:
    compare_alone_and_in_batches(small_model(**options))


@EVERY_KIND
@torch.no_grad()
def test_garbage_in_padding(options: dict[str, Any]) -> None:
    assert_padding_is_ignored(small_model(**options))


@EVERY_KIND
@torch.no_grad()
def test_in_half_precision(options: dict[str, Any]) -> None:
    """As after `--bf16`: all of it computes in bfloat16, and roughly the same."""
    inputs = batch()
    real = ~padding(inputs["prev_output_tokens"])
    exact, rounded = (
        small_model(**options, dtype=dtype)(**inputs)[0][real]
        for dtype in (torch.float64, torch.bfloat16)
    )
    assert rounded.dtype == torch.bfloat16
    both = torch.stack([exact.flatten(), rounded.double().flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.9
