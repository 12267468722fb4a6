"""Score and seconds against the computation that halting skips (SUT Figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sut_fairseq.analysis.drawing import Figure, literal_text, save, wrapped

# Of the width and of the height: labels closer to each other in both would be unreadable.
_APART = (0.05, 0.06)
_LABEL = 84  # characters of a line of the legend


class Point(NamedTuple):
    """What a model did at one halting threshold.

    Attributes:
        threshold: `alpha_threshold`.
        score: any number; higher is better.
        skipped: share of the steps, from 0 to 1.
        seconds: time that the model ran.
    """

    threshold: float
    score: float
    skipped: float
    seconds: float


class Curve(NamedTuple):
    """One model at all thresholds."""

    label: str
    points: Sequence[Point]


@literal_text
def draw(curves: Sequence[Curve], score: str, title: str, path: Path) -> None:
    """Draw curves, in the format given by the file's suffix; `score` says what the score is."""
    labels = [wrapped(curve.label, _LABEL) for curve in curves]
    lines = sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(6.4, 5.0 + 0.16 * lines), layout="constrained")
    draw_into(figure, curves, score)
    figure.suptitle(title, fontsize="medium")
    save(figure, path)


def draw_into(figure: Figure, curves: Sequence[Curve], score: str) -> None:
    """Draw curves into an empty figure: scores above, seconds below."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    all_skipped = [100 * point.skipped for curve in curves for point in curve.points]
    all_scores = [point.score for curve in curves for point in curve.points]
    width, height = (max(values) - min(values) for values in (all_skipped, all_scores))
    labelled: list[tuple[float, float]] = []
    for curve in curves:
        skipped = [100 * point.skipped for point in curve.points]
        scores = [point.score for point in curve.points]
        (line,) = above.plot(skipped, scores, marker=".", label=wrapped(curve.label, _LABEL))
        below.plot(skipped, [point.seconds for point in curve.points], marker=".")
        for x, y, point in sorted(zip(skipped, scores, curve.points)):
            if any(
                abs(x - other_x) <= _APART[0] * width and abs(y - other_y) <= _APART[1] * height
                for other_x, other_y in labelled
            ):
                continue
            labelled.append((x, y))
            above.annotate(
                f"{point.threshold:g}",
                (x, y),
                textcoords="offset points",
                xytext=(0, 4),
                fontsize="x-small",
                ha="center",
                color=line.get_color(),
            )
    above.set_ylabel(score)
    below.set_ylabel("seconds")
    below.set_xlabel("skipped steps of loops that halt, %; labels: alpha_threshold")
    above.margins(y=0.1)  # room for the labels
    greatest = max(point.seconds for curve in curves for point in curve.points)
    below.set_ylim(0, 1.1 * greatest or 1)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    if len(curves) > 1:
        figure.legend(loc="outside lower center", fontsize="small")
