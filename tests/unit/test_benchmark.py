"""How steps are timed and their memory found."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from sut_fairseq.analysis.benchmark.halting import ScheduledHalting, depths
from sut_fairseq.analysis.benchmark.peak import added_bytes, peak_bytes
from sut_fairseq.analysis.benchmark.steps import Step, sample_of
from sut_fairseq.analysis.benchmark.timing import Conditions, Timings, measure
from tests.models import HALTING, small_model

CONDITIONS = Conditions(torch.device("cpu"), torch.float32, repetitions=3, seed=1)


def test_every_repetition_runs_each_variant_once_in_turn() -> None:
    order: list[str] = []
    variants = {name: lambda name=name: order.append(name) for name in "abc"}
    timings = measure(variants, CONDITIONS, description="")
    assert order == list("abcbcacababc")  # one round to warm up, three that count
    assert {name: len(times) for name, times in timings.seconds.items()} == dict(a=3, b=3, c=3)


def test_times_are_those_of_one_call_by_the_given_clock() -> None:
    ticks, called = iter(range(100)), []
    variants = {"a": lambda: called.append(1)}
    clock = partial(next, ticks)
    timings = measure(variants, CONDITIONS, description="", clock=clock, calls=4)
    assert len(called) == 4 * 4  # one round to warm up, three that count
    assert timings.seconds["a"] == [0.25] * 3


def test_added_memory_of_a_known_step() -> None:
    """A gather, its gradient and that of the rows; torch's own work in place counts once."""
    rows, order = torch.randn(1000, 10, requires_grad=True), torch.randperm(1000)

    def forward() -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        result = rows.index_select(0, order)
        return [result], [torch.ones_like(result)]

    assert added_bytes(Step(nn.Module(), forward, (rows,)), CONDITIONS) == 3 * 4 * 10_000


def test_the_target_is_one_token_before_what_the_decoder_reads() -> None:
    read = torch.tensor([[2, 5, 6], [2, 7, 8]])
    sample = sample_of({"src_tokens": read + 1, "prev_output_tokens": read}, torch.device("cpu"))
    assert sample["target"].tolist() == [[5, 6, 2], [7, 8, 2]] and sample["ntokens"] == 6
    assert sample["net_input"]["prev_output_tokens"].equal(read)


def test_ratios_pair_the_times_of_a_repetition() -> None:
    """On a machine that becomes ten times slower meanwhile."""
    timings = Timings({"a": [1.0, 5.0, 10.0], "b": [2.0, 10.0, 30.0]})
    assert timings.ratio("b", "a") == (2, 2, 3)


@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.5, 0.8, 5 / 6])
def test_depths_have_the_right_mean(share: float) -> None:
    steps = depths(1000, 6, share, torch.Generator().manual_seed(1))
    assert 1 <= steps.min() <= steps.max() <= 6
    assert int(steps.sum()) == round(6000 * (1 - share))
    if share == 0.5:
        assert steps.bincount().tolist() == [0, 200, 200, 200, 200, 200]


def test_every_token_runs_a_step() -> None:
    """Whatever the share: a typed 0.833334 is a little more than five of six steps."""
    assert depths(1000, 6, 0.9, torch.Generator()).tolist() == [1] * 1000


@pytest.mark.parametrize("layout", ["compact", "masked"])
def test_scheduled_halting_does_what_it_is_told(layout: str) -> None:
    stack = small_model(**HALTING).encoder.stack
    stack.layout = layout
    planned = torch.tensor([1, 3, 2, 4, 4, 1])
    stack.halting = ScheduledHalting(stack.halting, planned).double()
    for _ in range(2):
        output = stack(torch.randn(2, 3, 16).double(), torch.zeros(2, 3, dtype=torch.bool))
        assert float(output.halting.steps_run) == planned.sum()


def test_peak_memory_of_a_known_step() -> None:
    """Views and results in place count once; what is freed no longer counts."""
    module = nn.Linear(10, 100, bias=False)
    states = torch.randn(50, 10)

    def forward() -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        hidden = module(states)
        for _ in range(3):
            hidden.view(100, 50).t().mul(2)  # 5,000 numbers, gone at once
        hidden.add_(1)
        return [hidden], [torch.ones_like(hidden)]

    step = Step(module, forward, (states,))
    # Weights, their gradient and the input; the result and the greater of a temporary product and
    # the result's gradient, with which the weights' new gradient is made.
    assert peak_bytes(step, CONDITIONS) == 4 * (1000 + 1000 + 500 + 5000 + 5000 + 1000)
    assert peak_bytes(step, CONDITIONS) == peak_bytes(step, CONDITIONS)
