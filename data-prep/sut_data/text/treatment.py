"""How parallel text can be treated, and what is counted along the way."""

from __future__ import annotations

from typing import NamedTuple


class Treatment(NamedTuple):
    """What is done to the text; see the options of `sets/parallel_text.py`."""

    joined: bool = False
    subwords: str = "words"  # one of `tokenization.SUBWORDS`
    size: int = 0  # merges or entries of the vocabulary
    languages: tuple[str | None, str | None] = (None, None)
    tokenized: bool = False
    max_length: int | None = None
    max_ratio: float | None = None

    @property
    def changes_text(self) -> bool:
        """Whether the symbols differ from the words of the files."""
        return self.subwords != "words" or self.languages != (None, None)

    @property
    def cleans(self) -> bool:
        """Whether unfit training pairs are dropped, blank ones too, rather than refused."""
        return self.changes_text or self.max_length is not None or self.max_ratio is not None


class Counts(NamedTuple):
    """What a split holds and what it lost; lengths are in symbols, without end of sentence."""

    pairs: int
    longest_src: int
    longest_tgt: int
    unknown_src: int  # symbols of the split that the training text lacks
    unknown_tgt: int
    blank: int = 0  # pairs dropped: a side without a word,
    too_long: int = 0  # over `max_length` on one side,
    uneven: int = 0  # one side more than `max_ratio` times as long as the other
    unreachable: int = 0  # pairs kept whose target has a symbol that the training text lacks
    trained: int = 0  # pairs of an evaluation set that are in the training text too
