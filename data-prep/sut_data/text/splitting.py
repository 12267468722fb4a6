"""Words split at their symbols, for formal languages: `f(x, y)` becomes `f ( x , ▁ y )`.

A symbol is any character but letters, digits and the underscore. A space is written, as `▁`, only
next to a symbol: between two words it is implied.
"""

from __future__ import annotations

import re

SPACE = "\u2581"

_WORD = re.compile(r"\w+")
_PIECE = re.compile(r"\w+|[^\w\s]")


def split_symbols(words: str) -> str:
    """Split words into runs of letters and digits and single symbols; `join_symbols` undoes it.

    A `▁` in the text itself cannot be told from the mark.
    """
    pieces: list[str] = []
    for word in words.split():
        inside = _PIECE.findall(word)
        if pieces and not (_is_word(pieces[-1]) and _is_word(inside[0])):
            pieces.append(SPACE)
        pieces += inside
    return " ".join(pieces)


def join_symbols(pieces: str) -> str:
    """Put the pieces of `split_symbols` together again."""
    text, last = "", ""
    for piece in pieces.split():
        between = " " if _is_word(last) and _is_word(piece) else ""
        text += " " if piece == SPACE else between + piece
        last = piece
    return " ".join(text.split())


def _is_word(piece: str) -> bool:
    return _WORD.fullmatch(piece) is not None
