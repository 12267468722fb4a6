"""What pictures have in common: matplotlib that keeps quiet, and text that is drawn as it is."""

from __future__ import annotations

import logging

# It reports each font that it looks at wherever fairseq has switched logging on.
logging.getLogger("matplotlib").setLevel(logging.WARNING)
from matplotlib import colormaps, rc_context  # noqa: E402
from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.backend_bases import FigureCanvasBase  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.figure import Figure as Figure  # noqa: E402
from matplotlib.font_manager import FontProperties as FontProperties  # noqa: E402
from matplotlib.textpath import text_to_path as text_to_path  # noqa: E402

FORMATS = frozenset(FigureCanvasBase.get_supported_filetypes())

# For functions that draw words, names or titles of users: two `$` in one make no formula.
literal_text = rc_context({"text.parse_math": False})


def colors(count: int) -> list[str]:
    """A colour for each of some curves: matplotlib's usual ten, or twenty where they are more."""
    if count <= 10:
        return [f"C{number}" for number in range(count)]
    twenty = [to_hex(color) for color in colormaps["tab20"].colors]  # type: ignore[attr-defined]
    return [twenty[number % len(twenty)] for number in range(count)]
