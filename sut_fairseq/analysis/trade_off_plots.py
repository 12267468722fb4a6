"""Score and seconds against the computation that halting skips (SUT Figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sut_fairseq.analysis.drawing import Axes, Figure, literal_text


class Point(NamedTuple):
    """What a model did at one halting threshold.

    Attributes:
        threshold: `alpha_threshold`.
        score: any number; higher is better.
        skipped: share of the steps, from 0 to 1.
        seconds: that the model ran.
    """

    threshold: float
    score: float
    skipped: float
    seconds: float


class Curve(NamedTuple):
    """A model over all thresholds."""

    label: str
    points: Sequence[Point]


@literal_text
def draw(curves: Sequence[Curve], score: str, title: str, path: Path) -> None:
    """Draw curves in the format that the file's name ends in.

    Args:
        curves: of models.
        score: what the score is, in words.
        title: above the picture.
        path: of the picture.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    draw_into(figure.subplots(), curves, score)
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=150)


def draw_into(axes: Axes, curves: Sequence[Curve], score: str) -> None:
    """Draw curves into axes, the seconds of each dashed on an axis of their own."""
    clock = axes.twinx()
    clock.set_ylabel("seconds (dashed)")
    for curve in curves:
        skipped = [100 * point.skipped for point in curve.points]
        scores = [point.score for point in curve.points]
        seconds = [point.seconds for point in curve.points]
        (line,) = axes.plot(skipped, scores, marker="o", label=curve.label)
        clock.plot(skipped, seconds, marker=".", linestyle="--", color=line.get_color(), alpha=0.6)
        for x, y, point in zip(skipped, scores, curve.points):
            axes.annotate(
                f"{point.threshold:g}",
                (x, y),
                textcoords="offset points",
                xytext=(0, 5),
                fontsize="x-small",
                ha="center",
            )
    axes.set_xlabel("skipped steps, % of all (token, step) pairs; labels: alpha_threshold")
    axes.set_ylabel(score)
    clock.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")  # both fall, if at all, to the right
