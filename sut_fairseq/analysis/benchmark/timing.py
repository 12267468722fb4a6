"""Times of several variants, measured side by side.

The speed of a machine drifts by more than the differences to be measured. So each repetition runs
every variant once, in rotating order, and a ratio is the median over repetitions of the quotient
of two times of the same repetition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch
from tqdm import tqdm


@dataclass(frozen=True)
class Conditions:
    """Where and how to measure.

    Attributes:
        device: the CPU or a GPU.
        dtype: float32, or bfloat16 or float16: then under autocast, with parameters in float32.
        repetitions: how often each variant is measured, after a fifth as many runs to warm up.
        seed: of weights, inputs and everything else that is random.
    """

    device: torch.device
    dtype: torch.dtype
    repetitions: int
    seed: int

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which a forward pass runs in `dtype`."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def synchronise(self) -> None:
        """Wait until the device has done its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Ratio(NamedTuple):
    """Median, least and greatest of the quotients of all repetitions."""

    median: float
    least: float
    greatest: float


class Timings:
    """Times in seconds, for each variant one per repetition."""

    def __init__(self, seconds: Mapping[str, list[float]]) -> None:
        self.seconds = seconds

    def median(self, variant: str) -> float:
        """Median time of a variant, in seconds."""
        return float(numpy.median(self.seconds[variant]))

    def summary(self, variant: str) -> dict[str, float | list[float]]:
        """Median, least and greatest time and both quartiles, in seconds."""
        seconds = self.seconds[variant]
        return {
            "median": self.median(variant),
            "min": min(seconds),
            "max": max(seconds),
            "quartiles": [float(value) for value in numpy.percentile(seconds, (25, 75))],
        }

    def ratio(self, numerator: str, denominator: str) -> Ratio:
        """Time of one variant relative to another's, paired by repetition."""
        pairs = zip(self.seconds[numerator], self.seconds[denominator])
        quotients = [above / below for above, below in pairs]
        return Ratio(float(numpy.median(quotients)), min(quotients), max(quotients))


def measure(
    variants: Mapping[str, Callable[[], object]],
    conditions: Conditions,
    *,
    description: str,
    clock: Callable[[], float] = time.perf_counter,
    calls: int = 1,
) -> Timings:
    """Time all variants, interleaved, after some runs of each to warm up.

    Args:
        variants: what to run, by name.
        conditions: how often and where; a GPU is waited for before and after each run.
        description: for the progress bar on standard error.
        clock: tells the time in seconds; `time.process_time` counts the time of this process on all
            cores, and leaves out other processes.
        calls: how often a variant is called in each repetition; times are those of one call.
    """
    names = list(variants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    warm_up = max(1, conditions.repetitions // 5)
    rounds = warm_up + conditions.repetitions
    total = rounds * len(names)
    with tqdm(total=total, desc=description, unit="run", disable=None) as progress:
        for repetition in range(rounds):
            shift = repetition % len(names)
            for name in names[shift:] + names[:shift]:
                elapsed = _time(variants[name], conditions, clock, calls)
                if repetition >= warm_up:
                    seconds[name].append(elapsed)
                progress.update()
    return Timings(seconds)


def _time(
    run: Callable[[], object], conditions: Conditions, clock: Callable[[], float], calls: int
) -> float:
    conditions.synchronise()
    start = clock()
    for _ in range(calls):
        run()
    conditions.synchronise()
    return (clock() - start) / calls
