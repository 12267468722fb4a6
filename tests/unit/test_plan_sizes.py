"""What `sut-benchmark plan` computes from sizes alone: bytes, batches, rates and their limits."""

from __future__ import annotations

import pytest
import torch

from sut_fairseq.analysis.plan import memory
from sut_fairseq.analysis.plan.memory import Batch, Memory, memory_of
from sut_fairseq.analysis.plan.run import plan
from sut_fairseq.analysis.plan.speed import Point, fit
from tests.unit.test_plan import SPEED, VOCAB, machines, training


def test_the_longer_sentence_decides_how_many_fit() -> None:
    assert training().batch == Batch(11, 9, 7)
    assert training(src_len=3).batch == Batch(14, 3, 7)


def test_a_ring_is_as_fast_as_its_narrowest_part() -> None:
    assert machines(8, 2).narrowest == 1e9
    assert machines(8, 2, network=9e9).narrowest == 4e9
    assert machines(8, 1).narrowest == 4e9


@pytest.mark.parametrize("dtype, state", [(torch.float32, 8), (torch.bfloat16, 16)])
def test_bytes_of_a_parameter(
    dtype: torch.dtype, state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two moments in float32; below it also weight and gradient in float32."""
    monkeypatch.setattr(memory, "peak_bytes", lambda *_: 0)
    alone, two = (
        memory_of("sut_tiny", VOCAB, (), Batch(1, 2, 2), dtype=dtype, workers=workers)
        for workers in (1, 2)
    )
    number = alone.gradients // dtype.itemsize
    assert alone.parameters > dtype.itemsize * number  # positions are a buffer
    assert alone.optimizer == state * number
    assert alone.buckets == 0 and two.buckets == two.gradients == alone.gradients


def test_the_sum_of_all_parts() -> None:
    """Experts are parameters, and what a step adds is part of the activations."""
    parts = Memory(
        parameters=1,
        experts=10,
        gradients=100,
        buckets=1_000,
        optimizer=10_000,
        activations=100_000,
        activations_of_a_step=1_000_000,
    )
    assert parts.total == 111_101


@pytest.mark.parametrize("dtype, state", [(torch.float32, 20), (torch.bfloat16, 22)])
def test_how_many_experts_fill_the_memory(
    dtype: torch.dtype, state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as keep all bytes within it; a parameter has its share of each part."""
    used = 100_000_000
    made_up = Memory(used, 0, 0, 0, 0, 0, 0)
    monkeypatch.setattr("sut_fairseq.analysis.plan.run.memory_of", lambda *_, **__: made_up)
    on = machines(8, 2, memory=1e9)
    found = plan(training(dtype=dtype), on, SPEED)["expert_parallelism"]
    # Of all layers of sut_tiny: three times attention, twice feed-forward, four experts each.
    one = 3 * (2 * 128 * 64) + 2 * (2 * 128 * 128 + 2 * 128)
    others = used - 4 * state * one
    number = found["experts_for_full_memory"]
    assert others + number * state * one <= 1e9 < others + (number + 1) * state * one
    for room, fits in ((used, True), (used - 1, False)):
        tight = machines(8, 2, memory=room)
        assert plan(training(dtype=dtype), tight, SPEED)["memory"]["fits"] == fits


def test_no_constant_is_negative() -> None:
    """Where time grows faster than the batch, or a known rate is too low for a measured time."""
    found = fit([Point(12, 1e11, 0.1), Point(12, 4e11, 0.8)], "")
    assert found.seconds_per_step == 0 and 5e11 < found.macs_per_second < 1e12
    assert fit([Point(12, 1e12, 1.0)], "", macs_per_second=5e11).seconds_per_step == 0
