"""What all pictures share: matplotlib without log messages, and text drawn literally."""

from __future__ import annotations

import logging
import re
import textwrap

# matplotlib logs each font that it considers wherever fairseq has switched logging on.
logging.getLogger("matplotlib").setLevel(logging.WARNING)
from matplotlib import colormaps, rc_context  # noqa: E402
from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.backend_bases import FigureCanvasBase  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.figure import Figure as Figure  # noqa: E402
from matplotlib.font_manager import FontProperties as FontProperties  # noqa: E402
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
