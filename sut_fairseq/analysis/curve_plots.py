"""Training curves: a line for each run, a panel for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib.lines import Line2D

from sut_fairseq.analysis.drawing import Figure, colors, literal_text

VALID = "valid"
_COLUMNS = 3  # panels side by side
_FEW = 12  # up to so many points of a curve are marked one by one


class Curve(NamedTuple):
    """The results of a run on a held-out set, as pairs of updates and value."""

    panel: str
    model: str
    subset: str
    points: Sequence[tuple[int, float]]


@literal_text
def draw(curves: Sequence[Curve], models: Sequence[str], measure: str, path: Path) -> None:
    """Draw a measure by update.

    All seeds of a model have one colour. Sets other than the validation set are dashed.

    Args:
        curves: of all runs.
        models: in the order in which they take colours; those without a curve take none.
        measure: what is drawn, in words.
        path: of the picture.
    """
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    drawn = {curve.model for curve in curves}
    models = [model for model in models if model in drawn]
    color_of = dict(zip(models, colors(len(models))))
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(0.8 + 4.4 * columns, 0.6 + 3.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    for axes, panel in zip(grid, panels):
        for curve in curves:
            if curve.panel == panel:
                axes.plot(
                    *zip(*curve.points),
                    color=color_of[curve.model],
                    linestyle=_style(curve.subset),
                    marker="." if len(curve.points) <= _FEW else "",
                )
        axes.set_title(panel, fontsize="medium")
        axes.set_xlabel("updates")
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.axes[0].set_ylabel(measure)
    handles = [Line2D([], [], color=color, label=name) for name, color in color_of.items()]
    subsets = list(dict.fromkeys(curve.subset for curve in curves))
    if subsets != [VALID]:
        handles += [
            Line2D([], [], color="gray", linestyle=_style(name), label=name) for name in subsets
        ]
    figure.legend(handles=handles, loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=120)


def _style(subset: str) -> Literal["-", "--"]:
    return "-" if subset == VALID else "--"
