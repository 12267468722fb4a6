"""The curves of trainings: a line for each run, a panel for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib.lines import Line2D

from sut_fairseq.analysis.drawing import Figure, colors, literal_text

VALID = "valid"
_COLUMNS = 3  # panels side by side
_FEW = 12  # points of a curve that are still marked one by one


class Curve(NamedTuple):
    """What a run had on a held-out set after so many updates, as pairs of the two."""

    panel: str
    model: str
    subset: str
    points: Sequence[tuple[int, float]]


@literal_text
def draw(curves: Sequence[Curve], models: Sequence[str], measure: str, path: Path) -> None:
    """Draw a measure by update.

    A model has one colour; its seeds share it. Sets other than the validation set are dashed.

    Args:
        curves: of all runs.
        models: in which order they take their colours; those without a curve take none.
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
