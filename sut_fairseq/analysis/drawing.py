"""What pictures share: matplotlib without log messages, text drawn literally, whole files."""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sut_data.files import written_whole
from sut_fairseq.tasks.columns import order_of

# matplotlib logs each font that it considers wherever fairseq has switched logging on.
logging.getLogger("matplotlib").setLevel(logging.WARNING)
from matplotlib import colormaps, rc_context  # noqa: E402
from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.backend_bases import FigureCanvasBase  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.figure import Figure as Figure  # noqa: E402
from matplotlib.font_manager import FontProperties as FontProperties  # noqa: E402
from matplotlib.image import AxesImage  # noqa: E402
from matplotlib.textpath import text_to_path as text_to_path  # noqa: E402

FORMATS = frozenset(FigureCanvasBase.get_supported_filetypes())

# For functions that draw words, names or titles of users: a pair of `$` must not make a formula.
literal_text = rc_context({"text.parse_math": False})


def wrapped(label: str, width: int) -> str:
    """A label for a legend, on several lines if it is long, each option beside its value."""
    kept = re.sub(r"(--\S+) (?=[^-\s])", "\\1\N{NO-BREAK SPACE}", label)
    lines = textwrap.fill(kept, width, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def colors(count: int) -> list[str]:
    """A colour for each curve: matplotlib's default ten, or twenty for more than ten curves."""
    if count <= 10:
        return [f"C{number}" for number in range(count)]
    twenty = [to_hex(color) for color in colormaps["tab20"].colors]  # type: ignore[attr-defined]
    return [twenty[number % len(twenty)] for number in range(count)]


def place_groups(axes: Axes, names: Sequence[str]) -> Sequence[float]:
    """Where groups stand on the horizontal axis: at their numbers, or one beside the other."""
    if not all(order_of(name)[0] == 0 for name in names):
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize="small")
        return range(len(names))
    places = [float(name) for name in names]
    if all(place.is_integer() for place in places):
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)
    return places


def draw_cells(
    axes: Axes,
    values: NDArray[Any],
    texts: Sequence[Sequence[str]],
    dark: NDArray[Any],
    *,
    fontsize: float = 8,
    **options: Any,
) -> AxesImage:
    """Draw values as colours, grey where they are NaN, and their texts, white where it is `dark`.

    Values, texts and `dark` are by row and column; `options` are those of `imshow`.
    """
    axes.set_facecolor("0.82")
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            color = "white" if dark[row, column] else "black"
            if text:
                axes.text(
                    *(column, row, text), ha="center", va="center", fontsize=fontsize, color=color
                )
    return axes.imshow(values, aspect="auto", **options)


def save(figure: Figure, path: Path, dpi: float = 150.0) -> None:
    """Write a figure in the format given by the file's suffix; a huge one at lower resolution.

    The file is written whole or not at all.
    """
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=min(dpi, 12000 / max(figure.get_size_inches())))
