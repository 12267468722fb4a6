"""A heat map of scores: a row for each model, a column for each task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy

from sut_fairseq.analysis.drawing import Figure, draw_cells, literal_text, save

# From dark to light in equal steps of lightness, distinguishable with every kind of colour vision.
_COLOURS = "cividis"
_DARK = 55.0  # below this score the colour is dark


@literal_text
def draw(
    rows: Sequence[str],
    columns: Sequence[str],
    scores: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    title: str,
    path: Path,
) -> None:
    """Draw scores as colours, with their text in each cell; cells without a score are grey.

    Args:
        rows, columns: their names.
        scores: 0 to 100, by row and column; None: there is none.
        texts: what the cells say.
    """
    size = (2.6 + 1.15 * len(columns), 1.7 + 0.42 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    values = numpy.array(scores, dtype=float)  # NaN for None
    image = draw_cells(axes, values, texts, values < _DARK, vmin=0, vmax=100, cmap=_COLOURS)
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks([place - 0.5 for place in range(1, len(columns))], minor=True)
    axes.set_yticks([place - 0.5 for place in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white")
    axes.tick_params(which="both", length=0)
    axes.set_title(title, fontsize="medium")
    figure.colorbar(image, ax=axes, label="per cent")
    save(figure, path)
