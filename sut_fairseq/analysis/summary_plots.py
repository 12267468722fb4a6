"""Pictures that compare models: a line for each model, a panel for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.lines import Line2D

from sut_fairseq.analysis.drawing import Axes, Figure, colors, literal_text, save

_MARGIN = 3  # below 0 and above 100 %


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
    listed: Sequence[Series], groups: Sequence[str], title: str, measure: str, path: Path
) -> None:
    """Draw mean and deviation by group, from left to right; crosses are the paper's numbers."""
    panels = list(dict.fromkeys(series.panel for series in listed))
    models = list(dict.fromkeys(series.model for series in listed))
    color_of = dict(zip(models, colors(len(models))))
    figure = Figure(figsize=(0.8 + 5.2 * len(panels), 4.0), layout="constrained")
    for axes, panel in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True
    ):
        for series in listed:
            if series.panel == panel:
                _draw_into(axes, series, groups, color_of[series.model])
        axes.set_title(panel, fontsize="medium")
        axes.set_xticks(range(len(groups)), groups, rotation=30)
        axes.grid(alpha=0.3)
    handles = [
        Line2D([], [], marker="o", color=color, label=name) for name, color in color_of.items()
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


def _draw_into(axes: Axes, series: Series, groups: Sequence[str], color: str) -> None:
    """Draw the results of one model, and the paper's numbers."""
    points = sorted(series.points, key=lambda point: groups.index(point.group))
    axes.errorbar(
        [groups.index(point.group) for point in points],
        [point.mean for point in points],
        yerr=[point.deviation or 0.0 for point in points],
        marker="o",
        capsize=3,
        color=color,
    )
    paper = {groups.index(p.group): p.paper for p in points if p.paper is not None}
    axes.plot(list(paper), list(paper.values()), "x", color=color)
