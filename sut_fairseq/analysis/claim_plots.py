"""All results beside the papers' numbers: a plot for each paper, with a line for each result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sut_fairseq.analysis.drawing import Figure, literal_text, save

_PAPER = "black"


class Result(NamedTuple):
    """A number of ours and that of a paper, its source.

    None: the paper has no number, or a single seed no deviation.
    """

    source: str
    label: str
    ours: float
    deviation: float | None
    paper: float | None
    verdict: str


@literal_text
def draw(results: Sequence[Result], color_of: Mapping[str, str], measure: str, path: Path) -> None:
    """Draw the results from top to bottom; lines of ours reach a deviation to both sides.

    Args:
        results: all in one measure, those of a paper in succession.
        color_of: the colour of each verdict, in the order of the legend.
        measure: what they are, in words.
    """
    by_source = [(source, list(own)) for source, own in groupby(results, lambda one: one.source)]
    heights = [len(own) for _, own in by_source]
    figure = Figure(
        figsize=(8, 1.3 + 0.26 * sum(heights) + 0.4 * len(heights)), layout="constrained"
    )
    plots = figure.subplots(len(heights), sharex=True, height_ratios=heights, squeeze=False)
    for (source, own), axes in zip(by_source, plots.flat):
        axes.set_title(source, loc="left", fontsize="medium")
        _draw_source(axes, own, color_of)
    axes.set_xlabel(measure)
    present = {result.verdict for result in results}
    handles: list[Artist] = [
        Line2D([], [], color=color, marker="o", label=verdict)
        for verdict, color in color_of.items()
        if verdict in present
    ]
    paper = Line2D([], [], color=_PAPER, marker="|", markersize=11, linestyle="", label="the paper")
    handles.append(paper)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize="small")
    save(figure, path, dpi=120)


def _draw_source(axes: Axes, results: Sequence[Result], color_of: Mapping[str, str]) -> None:
    for height, result in enumerate(results):
        axes.errorbar(
            result.ours,
            height,
            xerr=result.deviation,
            color=color_of[result.verdict],
            marker="o",
            capsize=3,
        )
        if result.paper is not None:
            axes.plot(
                *(result.paper, height, "|"),
                color=_PAPER,
                markersize=11,
                markeredgewidth=2,
                zorder=3,  # before a dot at the same place
            )
    axes.set_yticks(range(len(results)), [result.label for result in results], fontsize="small")
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
