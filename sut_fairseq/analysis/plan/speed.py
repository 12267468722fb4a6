"""How long a training step takes, estimated from measured ones.

A step of these models is many small operations: on a GPU the time to start them dominates, on a CPU
the arithmetic. Two constants describe both: seconds for each step of depth, and MACs per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

from sut_data.tables import counted
from sut_fairseq.errors import InputError


@dataclass(frozen=True)
class Point:
    """A measured forward and backward pass.

    Attributes:
        steps: steps of depth of both stacks together.
        macs: of both passes, attention products included.
        seconds: time that both took.
    """

    steps: int
    macs: float
    seconds: float


@dataclass(frozen=True)
class Speed:
    """seconds = seconds_per_step * steps + macs / macs_per_second.

    Attributes:
        seconds_per_step: for one step of depth, however small the batch.
        macs_per_second: rate of everything else.
        source: where the constants are from.
        device: `cuda` or `cpu`, on which they were measured; empty if that is not known.
    """

    seconds_per_step: float
    macs_per_second: float
    source: str
    device: str = ""

    def seconds(self, steps: float, macs: float) -> float:
        """Time of a forward and backward pass; arguments as in `Point`."""
        return self.seconds_per_step * steps + macs / self.macs_per_second


def fit(
    points: Iterable[Point], source: str, device: str = "", *, macs_per_second: float | None = None
) -> Speed:
    """Fit the constants by least squares of relative errors; neither of them is negative.

    Args:
        points: at least one; with a single batch size all time is attributed to arithmetic.
        source: where they are from.
        device: see `Speed`.
        macs_per_second: this constant, if it is known from elsewhere.
    """
    # The equation of each point: 1 = a * steps / seconds + b * macs / seconds.
    rows = numpy.array([[p.steps / p.seconds, p.macs / p.seconds] for p in points])
    ones = numpy.ones(len(rows))
    if macs_per_second is not None:
        rest = ones - rows[:, 1] / macs_per_second
        per_step = float(rows[:, 0] @ rest / (rows[:, 0] @ rows[:, 0]))
        return Speed(max(per_step, 0.0), macs_per_second, source, device)
    scale = rows.mean(axis=0)  # the two columns differ by ten orders of magnitude
    (per_step, per_mac), _, rank, _ = numpy.linalg.lstsq(rows / scale, ones, rcond=1e-6)
    if rank < 2 or per_step < 0 or per_mac <= 0:
        per_step = 0.0
        own = rows[:, 1] / scale[1]
        per_mac = own @ ones / (own @ own)
    return Speed(float(per_step / scale[0]), float(scale[1] / per_mac), source, device)


# `sut_base` in `sut-benchmark train` with 32 + 32 tokens a pair and 32,768 words, as printed in
# docs/benchmarks.md: sentence pairs and seconds.
_STEPS, _MACS_OF_PAIR = 12, 7.386e9
_H100 = ((32, 0.220), (64, 0.206), (64, 0.19566), (128, 0.157))
_CPU = ((16, 2.28223), (16, 2.29187), (32, 4.31718), (64, 7.86912), (64, 7.56493))
# Of the layer of experts with 16,384 tokens on the H100. The training steps there tell nothing
# about the arithmetic: more sentences did not take longer.
_H100_MACS_PER_SECOND = 22.14e12


def _points(measured: Iterable[tuple[int, float]]) -> list[Point]:
    return [Point(_STEPS, sentences * _MACS_OF_PAIR, seconds) for sentences, seconds in measured]


POINTS = {"h100": _points(_H100), "cpu": _points(_CPU)}
MEASURED = {
    "h100": fit(
        POINTS["h100"],
        "docs/benchmarks.md: one H100, bfloat16 under autocast",
        "cuda",
        macs_per_second=_H100_MACS_PER_SECOND,
    ),
    "cpu": fit(POINTS["cpu"], "docs/benchmarks.md: two cores of an AMD EPYC, float32", "cpu"),
}


def from_report(document: Mapping[str, Any], steps: int, source: str) -> Speed:
    """Fit the constants to a measurement of `sut-benchmark train --json`.

    Args:
        document: the JSON that it printed.
        steps: steps of the architecture that it measured, of encoder and decoder together.
        source: the file of the document, which the plan names.

    Raises:
        InputError: if the document is something else.
    """
    try:
        settings, variants = document["settings"], document["variants"]
        own = variants[settings["arch"]]
        # Reports of earlier versions have MACs per second, but not their number.
        macs = own.get("macs") or 1e9 * own["gmacs_per_second"] * own["median"]
        per_pair = macs / settings["sentences"]
        points = [Point(steps, macs, own["median"])]
        for times in (1, 2, 4):
            if f"tokens_{times}x" in variants:
                pairs = times * settings["scaling_sentences"]
                seconds = variants[f"tokens_{times}x"]["median"]
                points.append(Point(steps, pairs * per_pair, seconds))
        device = str(settings.get("device", ""))
        return fit(points, ": ".join((source, *_conditions(document))), device)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"`{source}` is not what `sut-benchmark train --json` prints: give such a file, or one "
            f"of {', '.join(MEASURED)}."
        ) from None


def _conditions(document: Mapping[str, Any]) -> list[str]:
    """Machine and precision of a report, as one text; empty if it names neither."""
    settings, machine = document["settings"], document.get("machine", {})
    threads = settings.get("threads", 1)
    on_cpu = settings.get("device") == "cpu" and "processor" in machine
    named = [
        machine.get("gpu") or machine.get("processor"),
        counted(threads, "thread") if on_cpu else None,
        settings.get("dtype"),
    ]
    return [", ".join(map(str, filter(None, named)))] if any(named) else []
