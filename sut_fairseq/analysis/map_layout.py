"""Pages of maps whose rows and columns are words, of a size that keeps every word readable."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import colormaps
from torch import Tensor

from sut_fairseq.analysis.drawing import Axes, Figure, FontProperties, text_to_path

# Inches.
WIDTH = 14.0  # of a large picture
GAP = 0.15
_BAR, _BAR_ROOM = 0.14, 0.9  # width of the colour bar, without and with its labels

# Points.
TITLE, _NOTE = 11.0, 8.0
_LARGEST, _SMALLEST = 9.0, 4.5  # words beside a map

_LINE = 1.25  # line spacing, in font sizes
_LONGEST_WORD = 14  # characters; longer words are cut
_COLOURS = colormaps["Blues"].with_extremes(bad="0.82")  # grey, which the map does not have


class Labels(NamedTuple):
    """Words beside the cells of a map; lengths are in inches.

    Attributes:
        words: shortened.
        size: of the font, in points.
        cell: room for one word.
        extent: length of the longest word.
    """

    words: list[str]
    size: float
    cell: float
    extent: float

    @classmethod
    def of(cls, words: Sequence[str], room: float) -> Labels:
        """Labels that fit into `room` inches, unless the font would become unreadable."""
        shown = [w if len(w) <= _LONGEST_WORD else w[: _LONGEST_WORD - 1] + "…" for w in words]
        size = min(_LARGEST, max(_SMALLEST, 72 * room / (_LINE * len(words))))
        return cls(shown, size, _LINE * size / 72, 0.06 + max(_extent(w, size) for w in shown))


def arrange(panels: int, width: float, height: float) -> tuple[int, int]:
    """Numbers of columns and rows of a grid of panels.

    The grid is to be about 1.5 times as wide as high, with few empty places.
    """

    def unfit(across: int) -> float:
        down = math.ceil(panels / across)
        empty = 1 - panels / (across * down)
        return abs(math.log(across * width / (down * height) / 1.5)) + 1.5 * empty

    across = min(range(1, panels + 1), key=unfit)
    return across, math.ceil(panels / across)


class Page:
    """A figure with room for maps, a title above and a colour bar to the right.

    Args:
        width, height: of the room for maps, in inches.
        title: of the figure.
        note: smaller text below the title; may be empty.
    """

    def __init__(self, width: float, height: float, title: str, note: str) -> None:
        header = 0.34 + (0.2 if note else 0.0)
        needed = GAP + max(_extent(title, TITLE), _extent(note, _NOTE))
        self._right = GAP + max(width, needed - _BAR_ROOM)
        self._top = header
        height = self._height = max(height, 1.8)  # room for the colour bar and its label
        self._size = self._right + _BAR_ROOM, header + height + GAP
        self.figure = Figure(figsize=self._size)
        self._write(GAP, 0.08, title, TITLE)
        self._write(GAP, 0.31, note, _NOTE)

    def _write(self, x: float, y: float, text: str, size: float) -> None:
        width, height = self._size
        self.figure.text(x / width, 1 - y / height, text, fontsize=size, va="top", parse_math=False)

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """New axes; x from the left and y from the top of the page, in inches."""
        of_width, of_height = self._size
        corner = x / of_width, 1 - (y + height) / of_height
        return self.figure.add_axes((*corner, width / of_width, height / of_height))

    def map(
        self,
        place: tuple[float, float],
        size: tuple[float, float],
        values: Tensor,
        most: float,
        rows: Labels,
        columns: Labels,
    ) -> Axes:
        """Draw a map.

        Args:
            place: from the left and from the top of the room for maps, in inches.
            size: width and height, in inches.
            values: `(rows, columns)`, at least 0, NaN where there are none.
            most: the value of the darkest colour.
            rows, columns: their words, to the left of the map and below it.
        """
        axes = self._axes(GAP + place[0], self._top + place[1], *size)
        self._image = axes.imshow(
            values.float().numpy(),
            aspect="auto",
            cmap=_COLOURS,
            interpolation="nearest",
            vmin=0,
            vmax=most,
        )
        _label(axes, size[0], rows, columns)
        return axes

    def table(
        self,
        place: tuple[float, float],
        size: tuple[float, float],
        cells: Sequence[Sequence[str]],
        rows: Labels,
        columns: Labels,
    ) -> Axes:
        """Write a table; arguments as in `map`, but `cells` is the text of the cells, by row."""
        axes = self._axes(GAP + place[0], self._top + place[1], *size)
        axes.set_xlim(-0.5, len(columns.words) - 0.5)
        axes.set_ylim(len(rows.words) - 0.5, -0.5)
        for y, line in enumerate(cells):
            for x, text in enumerate(line):
                axes.text(x, y, text, ha="center", va="center", fontsize=rows.size)
        _label(axes, size[0], rows, columns)
        return axes

    def bar(self, label: str) -> None:
        """Add the colour bar of the maps, which all have one scale."""
        height = min(self._height - 0.1, 3.0)
        axes = self._axes(self._right + GAP, self._top + 0.05, _BAR, height)
        bar = self.figure.colorbar(self._image, cax=axes)
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.ax.locator_params(nbins=max(2, int(3 * height)))


def _label(axes: Axes, width: float, rows: Labels, columns: Labels) -> None:
    """Name the rows and the columns of a map `width` inches wide."""
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="0.5")
    axes.set_yticks(range(len(rows.words)), rows.words, parse_math=False)
    axes.set_xticks(range(len(columns.words)), columns.words, parse_math=False)
    axes.tick_params("y", length=0, pad=2, labelsize=rows.size)
    upright = columns.extent <= width / len(columns.words)
    angle = 0 if upright else 90
    axes.tick_params("x", length=0, pad=2, labelsize=columns.size, labelrotation=angle)


def _extent(text: str, size: float) -> float:
    """Length of a text in inches, in a font of `size` points."""
    font = FontProperties(size=size)
    with warnings.catch_warnings(action="ignore"):  # about missing glyphs: drawing warns, too
        width: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return width / 72
