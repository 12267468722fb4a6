"""Pictures of traces: attention maps, copy gates and halting by step (NDR Figures 2-4, 7-14)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from sut_fairseq.tasks.columns import order_of

# It reports each font that it looks at wherever fairseq has switched logging on.
logging.getLogger("matplotlib").setLevel(logging.WARNING)
from matplotlib import colormaps  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

_LONGEST_WORD = 14  # characters of a label; of a longer one the start is shown
_COLOURS = colormaps["Blues"].with_extremes(bad="0.82")  # grey, which the map does not have
_GAP = 0.15  # inches
_BAR = 0.14  # width of the colour bar
_TITLE = 11.0  # points


class _Labels(NamedTuple):
    """Words beside the cells of a map; lengths are in inches.

    Attributes:
        words: shortened.
        size: of the font, in points.
        cell: room for one.
        extent: length of the longest.
    """

    words: list[str]
    size: float
    cell: float
    extent: float

    @classmethod
    def of(cls, words: Sequence[str], most: int) -> _Labels:
        """Labels in a map whose longer side has `most` words: small where there are many."""
        shown = [w if len(w) <= _LONGEST_WORD else w[: _LONGEST_WORD - 1] + "…" for w in words]
        size = min(9.0, max(4.5, 170 / most))
        longest = max(map(len, shown))
        return cls(shown, size, 1.25 * size / 72, 0.68 * size / 72 * longest + 0.06)


def attention_figure(
    maps: Tensor, queries: Sequence[str], keys: Sequence[str], *, title: str, note: str = ""
) -> Figure:
    """A small map for each step: rows are queries, columns keys.

    Args:
        maps: weights in [0, 1], `(num_steps, num_queries, num_keys)`, NaN where there are none.
        queries, keys: the words.
        title: of the figure.
        note: below the title.
    """
    most = max(len(queries), len(keys))
    rows, columns = _Labels.of(queries, most), _Labels.of(keys, most)
    # One scale for both sides; very few words are spread so that the title has room.
    cell = max(rows.cell, 0.7 / min(len(queries), len(keys)))
    width, height = cell * len(keys), cell * len(queries)
    left, below, above = rows.extent + _GAP, columns.extent + _GAP, 0.22
    across, down = _arrange(len(maps), left + width, below + height + above)
    page = _Page(
        across * (left + width), down * (below + height + above), title, [_ROWS_COLUMNS, note]
    )
    for step, values in enumerate(maps):
        x = (step % across) * (left + width) + left
        y = (step // across) * (below + height + above) + above
        axes = page.map(x, y, width, height, values, 1.0)
        axes.set_title(f"step {step + 1}", fontsize=9, pad=3)
        _label_columns(axes, columns, cell)
        _label(axes, "y", rows)
    page.bar("attention weight", 1.0)
    return page.figure


_ROWS_COLUMNS = "rows: queries, columns: keys"


def steps_figure(
    values: Tensor, words: Sequence[str], *, title: str, measure: str, most: float, note: str = ""
) -> Figure:
    """One map whose rows are steps and whose columns are words.

    Args:
        values: at least 0, `(num_steps, length)`, NaN where there are none.
        words: the columns.
        title: of the figure.
        measure: what the values are.
        most: the greatest value of the colour bar.
        note: below the title.
    """
    labels = _Labels.of(words, len(words))
    steps = _Labels.of([str(step + 1) for step in range(len(values))], len(values))
    width = max(labels.cell, 0.22, 2.2 / len(words)) * len(words)
    height = max(steps.cell, 0.22, 1.2 / len(values)) * len(values)
    left, below = steps.extent + 2 * _GAP, labels.extent + _GAP
    page = _Page(left + width, below + height, title, [note])
    axes = page.map(left, 0, width, height, values, most)
    axes.set_ylabel("step", fontsize=9)
    _label_columns(axes, labels, width / len(words))
    _label(axes, "y", steps)
    page.bar(measure, most)
    return page.figure


def average_steps_figure(
    rows: Sequence[Mapping[str, Any]], by: str, greatest: Mapping[str, int], *, title: str
) -> Figure:
    """Average number of steps by group, and the greatest possible (NDR Figure 4).

    Args:
        rows: `group`, and `<name>_steps` for each depth loop.
        by: what the groups are of.
        greatest: number of steps of each loop, by name.
        title: of the figure.
    """
    groups = [row["group"] for row in rows]
    numeric = all(order_of(group)[0] == 0 for group in groups)
    places = [float(group) for group in groups] if numeric else list(range(len(groups)))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for name in greatest:
        steps = [row[f"{name}_steps"] for row in rows]
        axes.plot(places, steps, marker="o", markersize=4, label=name)
    for most in sorted(set(greatest.values())):
        of = " and ".join(name for name, own in greatest.items() if own == most)
        axes.axhline(most, color="tab:red", linestyle="--", label=f"greatest number, {of}")
    axes.set_ylim(0, 1.08 * max(greatest.values()))
    axes.set_xlabel(by.replace("_", " "), parse_math=False)
    axes.set_ylabel("average steps per token")
    if numeric:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.set_xticks(places, groups, rotation=90, fontsize="small", parse_math=False)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(title, fontsize=_TITLE, parse_math=False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in; a huge one more coarsely."""
    dpi = min(150.0, 12000 / max(figure.get_size_inches()))
    figure.savefig(path, dpi=dpi)


class _Page:
    """A figure with room for maps, a title above and a colour bar to the right.

    Args:
        width, height: of the room for maps, in inches.
        title: of the figure.
        notes: smaller, below the title; empty ones are left out.
    """

    def __init__(self, width: float, height: float, title: str, notes: Sequence[str]) -> None:
        note = "; ".join(note for note in notes if note)
        header = 0.34 + (0.2 if note else 0.0)
        # Letters take about half their height.
        needed = max(0.55 * _TITLE * len(title), 0.52 * 8 * len(note)) / 72 + 2 * _GAP
        self._right = _GAP + max(width, needed - 0.9)
        self._top = header
        self._height = height
        self._size = self._right + 0.9, header + height + _GAP
        self.figure = Figure(figsize=self._size)
        self._write(_GAP, 0.08, title, _TITLE)
        self._write(_GAP, 0.31, note, 8.0)

    def _write(self, x: float, y: float, text: str, size: float) -> None:
        width, height = self._size
        self.figure.text(x / width, 1 - y / height, text, fontsize=size, va="top", parse_math=False)

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """New axes; x from the left and y from the top of the page, in inches."""
        of_width, of_height = self._size
        corner = x / of_width, 1 - (y + height) / of_height
        return self.figure.add_axes((*corner, width / of_width, height / of_height))

    def map(
        self, x: float, y: float, width: float, height: float, values: Tensor, most: float
    ) -> Axes:
        """Draw a map `(rows, columns)` at a place in the room for maps."""
        axes = self._axes(_GAP + x, self._top + y, width, height)
        self._image = axes.imshow(
            values.float().numpy(),
            aspect="auto",
            cmap=_COLOURS,
            interpolation="nearest",
            vmin=0,
            vmax=most,
        )
        for spine in axes.spines.values():
            spine.set(linewidth=0.5, color="0.5")
        return axes

    def bar(self, label: str, most: float) -> None:
        """Add the colour bar of the maps."""
        height = min(self._height - 0.1, 3.0)
        axes = self._axes(self._right + _GAP, self._top + 0.05, _BAR, height)
        bar = self.figure.colorbar(self._image, cax=axes)
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.ax.locator_params(nbins=max(2, int(3 * height)))


def _arrange(panels: int, width: float, height: float) -> tuple[int, int]:
    """How many panels side by side, and how many one below the other: wider than high."""

    def shape(across: int) -> tuple[float, int]:
        down = math.ceil(panels / across)
        return abs(math.log(across * width / (down * height) / 1.5)), across * down

    across = min(range(1, panels + 1), key=shape)
    return across, math.ceil(panels / across)


def _label(axes: Axes, side: Literal["x", "y"], labels: _Labels, rotation: float = 0) -> None:
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_ticks(range(len(labels.words)), labels.words, parse_math=False)
    axes.tick_params(side, length=0, pad=2, labelsize=labels.size, labelrotation=rotation)


def _label_columns(axes: Axes, labels: _Labels, cell: float) -> None:
    """Words below columns, upright where they have the room."""
    _label(axes, "x", labels, 0 if labels.extent <= cell else 90)
