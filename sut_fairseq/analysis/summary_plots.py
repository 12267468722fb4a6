"""Pictures that compare models: a line for each model, a panel for each data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.lines import Line2D

from sut_fairseq.analysis.drawing import Axes, Figure, colors, literal_text, save, wrapped

_MARGIN = 3  # below 0 and above 100 %
_COLUMNS = 3  # at most so many panels side by side
_TICKS = 16  # at most so many groups of a panel are named
_LABEL = 36  # characters of a line of the legend
_SHIFT, _WIDTH = 0.12, 0.8  # between models beside each other, and of all of them, in groups


class Point(NamedTuple):
    """A result on a group of sentences; None: no deviation (a single seed), none published."""

    group: str
    mean: float
    deviation: float | None
    paper: float | None


class Series(NamedTuple):
    """The results of a model in one panel."""

    panel: str
    model: str
    points: Sequence[Point]


@literal_text
def draw(
    listed: Sequence[Series],
    groups: Sequence[str],
    title: str,
    measure: str,
    path: Path,
    connected: bool = True,
) -> None:
    """Draw mean and deviation by group, from left to right; crosses are the paper's numbers.

    Args:
        listed: the results.
        groups: in their order; a panel has those that its series have.
        title: of the picture.
        measure: what is drawn, in words.
        path: of the picture.
        connected: with lines between groups, which say that they follow each other.
    """
    panels = list(dict.fromkeys(series.panel for series in listed))
    models = list(dict.fromkeys(series.model for series in listed))
    color_of = dict(zip(models, colors(len(models))))
    rows = -(-len(panels) // _COLUMNS)
    columns = -(-len(panels) // rows)  # 4 panels are 2 rows of 2
    size = (0.8 + (5.2 if columns == 1 else 4.0) * columns, 0.4 + 3.6 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels):
        shown = [series for series in listed if series.panel == panel]
        _draw_panel(axes, shown, groups, color_of, connected)
        axes.set_title(panel, fontsize="medium")
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    handles = [
        Line2D([], [], marker="o", color=color, label=wrapped(name, _LABEL))
        for name, color in color_of.items()
    ]
    if any(point.paper is not None for series in listed for point in series.points):
        handles.append(Line2D([], [], marker="x", linestyle="", color="black", label="the paper"))
    figure.legend(handles=handles, loc="outside right center", fontsize="small")
    figure.axes[0].set_ylabel(measure)
    if measure.endswith("in per cent"):  # deviations may reach beyond 0 and 100
        least, most = figure.axes[0].get_ylim()
        figure.axes[0].set_ylim(max(least, -_MARGIN), min(most, 100 + _MARGIN))
    figure.suptitle(title, fontsize="medium")
    save(figure, path)


def _draw_panel(
    axes: Axes,
    listed: Sequence[Series],
    groups: Sequence[str],
    color_of: Mapping[str, str],
    connected: bool,
) -> None:
    """Draw the results of all models, and the paper's numbers once for models that share them."""
    there = {point.group for series in listed for point in series.points}
    ticks = [group for group in groups if group in there]
    every = -(-len(ticks) // _TICKS)
    axes.set_xticks(range(0, len(ticks), every), ticks[::every], rotation=30)
    axes.grid(alpha=0.3)
    of_paper = set()
    for index, series in enumerate(listed):
        color = color_of[series.model]
        apart = 0.0 if connected else min(_SHIFT, _WIDTH / len(listed))
        shift = apart * (index - (len(listed) - 1) / 2)
        points = sorted((ticks.index(point.group) + shift, *point[1:]) for point in series.points)
        places, means, deviations, _ = zip(*points)
        axes.errorbar(
            places,
            means,
            yerr=[deviation or 0.0 for deviation in deviations],
            fmt="o-" if connected else "o",
            markersize=4,
            capsize=3,
            color=color,
        )
        paper = tuple((place, number) for place, *_, number in points if number is not None)
        if paper and paper not in of_paper:
            of_paper.add(paper)
            axes.plot(*zip(*paper), "x--" if connected else "x", color=color, linewidth=0.8)
