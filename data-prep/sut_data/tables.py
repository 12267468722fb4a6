"""Tables and counts as readable text, the same in all commands of the repository."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[object]], sides: str = "<>") -> str:
    """Return rows as aligned columns, two spaces between them.

    Args:
        rows: all of one length; the first may be a heading. Cells are converted with `str`.
        sides: the alignment of each column, `<` left or `>` right; the last one also applies to
            all further columns.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    forms = [f"{side}{width}" for side, width in zip(sides.ljust(len(widths), sides[-1]), widths)]
    return "\n".join("  ".join(map(format, row, forms)).rstrip() for row in cells)


def counted(number: int, noun: str) -> str:
    """Return `1 core`, `2 cores`, `1,000 cores`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
