"""Characters that the font of a picture lacks."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sut_data.command_line import printable


@contextmanager
def missing_glyphs_named(command: str) -> Iterator[None]:
    """Let a command name what the font lacks once, instead of matplotlib's many warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("default", "Glyph ")
        yield
    missing: dict[str, None] = {}
    for one in caught:
        if glyph := re.match(r"Glyph (\d+) .* missing from (current )?font", str(one.message)):
            missing[chr(int(glyph[1]))] = None
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if missing:
        print(
            f"{command}: the font of the pictures lacks {printable(' '.join(missing))} and draws "
            "boxes instead; name one that has them as `font.family` in your matplotlibrc.",
            file=sys.stderr,
        )
