"""What pictures have in common: matplotlib that keeps quiet, and text that is drawn as it is."""

from __future__ import annotations

import logging

# It reports each font that it looks at wherever fairseq has switched logging on.
logging.getLogger("matplotlib").setLevel(logging.WARNING)
from matplotlib import rc_context  # noqa: E402
from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.backend_bases import FigureCanvasBase  # noqa: E402
from matplotlib.figure import Figure as Figure  # noqa: E402
from matplotlib.font_manager import FontProperties as FontProperties  # noqa: E402
from matplotlib.textpath import text_to_path as text_to_path  # noqa: E402

FORMATS = frozenset(FigureCanvasBase.get_supported_filetypes())

# For functions that draw words, names or titles of users: two `$` in one make no formula.
literal_text = rc_context({"text.parse_math": False})
