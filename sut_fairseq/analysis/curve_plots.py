"""Training curves: a line for each training, a band over its seeds, a panel for each data set."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from sut_fairseq.analysis.drawing import Figure, colors, literal_text, save, wrapped

VALID = "valid"
_COLUMNS = 3  # at most so many panels side by side
_FEW = 12  # up to so many points of a curve are marked one by one
_LABEL = 36  # characters of a line of the legend
_FAINT = 0.15  # opacity of bands
_FAR = 5  # if the longest curve of a panel has more than so many times the updates of the shortest


class Curve(NamedTuple):
    """The results of a training on a held-out set, as pairs of updates and value for each seed."""

    panel: str
    training: str
    subset: str
    seeds: Sequence[Sequence[tuple[int, float]]]


@literal_text
def draw(curves: Sequence[Curve], trainings: Sequence[str], measure: str, path: Path) -> None:
    """Draw a measure by update: the mean over seeds, and a band from the lowest to the highest.

    Each training has one colour. Sets other than the validation set are dashed. The legend lists
    trainings as their curves end, highest first.

    Args:
        curves: of all trainings.
        trainings: in the order in which they take colours; those without a curve take none.
        measure: what is drawn, in words.
    """
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    drawn = {curve.training for curve in curves}
    trainings = [training for training in trainings if training in drawn]
    color_of = dict(zip(trainings, colors(len(trainings))))
    ends = {name: max(_end(one) for one in curves if one.training == name) for name in trainings}
    trainings.sort(key=lambda name: -ends[name])
    rows = -(-len(panels) // _COLUMNS)
    columns = -(-len(panels) // rows)  # 4 panels are 2 rows of 2
    labels = [wrapped(name, _LABEL) for name in trainings]
    # Of the legend, which has up to three entries more.
    lines = [line for label in labels for line in label.split("\n")]
    width, height = 0.07 * max(map(len, lines)), 0.145 * (len(lines) + 3) + 0.07 * len(labels)
    size = (1.4 + 3.6 * columns + width, max(0.6 + 3.2 * rows, 0.6 + height))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels):
        shown = [curve for curve in curves if curve.panel == panel]
        for curve in shown:
            _draw_into(axes, curve, color_of[curve.training])
        axes.set_title(panel, fontsize="medium")
        _scale_updates(axes, [_length(curve) for curve in shown])
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.axes[0].set_ylabel(measure)
    handles: list[Artist] = [
        Line2D([], [], color=color_of[name], label=label) for name, label in zip(trainings, labels)
    ]
    subsets = list(dict.fromkeys(curve.subset for curve in curves))
    if subsets != [VALID]:
        handles += [
            Line2D([], [], color="black", linestyle=_style(name), label=name) for name in subsets
        ]
    if any(len(curve.seeds) > 1 for curve in curves):
        handles.append(
            Patch(color="gray", label="lowest to highest seed", alpha=_FAINT, linewidth=0)
        )
    figure.legend(handles=handles, loc="outside right upper", fontsize="small")
    save(figure, path, dpi=120)


def _draw_into(axes: Axes, curve: Curve, color: str) -> None:
    """Draw one curve; where only some of the seeds have a value, these alone count."""
    values: defaultdict[int, list[float]] = defaultdict(list)
    for points in curve.seeds:
        for update, value in points:
            values[update].append(value)
    updates = sorted(values)
    axes.plot(
        updates,
        [statistics.fmean(values[update]) for update in updates],
        color=color,
        linestyle=_style(curve.subset),
        marker="." if len(updates) <= _FEW else "",
    )
    if len(curve.seeds) > 1:
        lowest = [min(values[update]) for update in updates]
        highest = [max(values[update]) for update in updates]
        axes.fill_between(updates, lowest, highest, color=color, alpha=_FAINT, linewidth=0)


def _scale_updates(axes: Axes, lengths: Sequence[int]) -> None:
    """Show updates in proportion; logarithmically if short curves would have no room."""
    axes.set_xlabel("updates")
    if max(lengths) > _FAR * min(lengths) > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _length(curve: Curve) -> int:
    """Updates of its last value."""
    return max(update for points in curve.seeds for update, _ in points)


def _end(curve: Curve) -> float:
    """The mean over seeds of their last values."""
    return statistics.fmean(max(points)[1] for points in curve.seeds)


def _style(subset: str) -> Literal["-", "--"]:
    return "-" if subset == VALID else "--"
