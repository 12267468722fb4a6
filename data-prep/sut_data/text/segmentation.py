"""Segment tokenised text, drop unfit training pairs, and count what remains."""

from __future__ import annotations

from collections import Counter
from functools import partial
from html import escape
from itertools import count
from pathlib import Path

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.text.chunks import Pairs, in_chunks, ordered_map, write_pairs
from sut_data.text.pairs import SIDES, read_pairs
from sut_data.text.tokenization import TextSide, text_side
from sut_data.text.treatment import Counts, Treatment

# Words that fairseq-preprocess takes for marks of its own: the first three would end a sentence or
# mask a position. `<unk>` becomes the unknown word, which is what texts that contain it mean.
_RESERVED = frozenset(["<s>", "<pad>", "</s>"])
_UNKNOWN = "<unk>"


def segment_chunk(
    models: tuple[tuple[str, Path | None], tuple[str, Path | None]], chunk: Pairs
) -> Pairs:
    """Segment pairs of tokenised lines with the kind of subwords and the model of each side."""
    src, tgt = (text_side(None, subwords, model) for subwords, model in models)
    return [(src.segment(source), tgt.segment(target)) for source, target in chunk]


class Vocabulary:
    """The symbols of the training text on each side, one set for both if they are joined."""

    def __init__(self, joined: bool) -> None:
        source: set[str] = set()
        self.sides = (source, source if joined else set())

    @classmethod
    def of(cls, folder: Path) -> Vocabulary:
        """Return the vocabulary of a prepared folder, from its dictionaries."""
        vocabulary = cls(joined=False)
        for side, known in zip(SIDES, vocabulary.sides):
            for line in read_lines(folder / f"dict.{side}.txt"):
                symbol, _, count = line.partition(" ")
                if count != "0":  # fairseq pads dictionaries with words that do not occur
                    known.add(symbol)
        return vocabulary

    def add(self, pair: tuple[list[str], list[str]]) -> None:
        """Add the symbols of a training pair."""
        for known, symbols in zip(self.sides, pair):
            known.update(symbols)
            known.discard(_UNKNOWN)

    def unknown(self, pair: tuple[list[str], list[str]]) -> list[int]:
        """Count the symbols of each side that the training text does not have."""
        return [
            sum(symbol not in known for symbol in symbols)
            for known, symbols in zip(self.sides, pair)
        ]


def unfit(lengths: tuple[int, int], treatment: Treatment) -> str | None:
    """Return why a training pair is dropped, as the name of its count; None if it is kept."""
    shorter, longer = sorted(lengths)
    if shorter == 0:
        return "blank"
    if treatment.max_length is not None and longer > treatment.max_length:
        return "too_long"
    if treatment.max_ratio is not None and longer > treatment.max_ratio * shorter:
        return "uneven"
    return None


def check_words(pair: tuple[list[str], list[str]], name: str) -> None:
    """Refuse a pair with a word that fairseq would not take for a word.

    Raises:
        InputError: naming the pair, the side and the word.
    """
    for side, symbols in zip(("source", "target"), pair):
        if not _RESERVED.isdisjoint(symbols):
            word = next(symbol for symbol in symbols if symbol in _RESERVED)
            raise InputError(
                f"{name} has the word `{word}` on its {side} side, which fairseq would take for a "
                f"mark of its own: write it differently there, such as `{escape(word)}`."
            )


class Segmenter:
    """Writes the symbols of one split after the other, the training text first if it is among them.

    Args:
        treatment: what is done to the text.
        sides: how each side is segmented.
        text: folder to write `<split>.src` and `<split>.tgt` to.
        workers: number of processes.
        vocabulary: of the training text; None if that is the first split to be written.

    Attributes:
        dropped: numbers of the training pairs that were left out, counted from 0.
    """

    def __init__(
        self,
        treatment: Treatment,
        sides: dict[str, TextSide],
        text: Path,
        workers: int,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.treatment = treatment
        source, target = (sides[side] for side in SIDES)
        self.models = ((source.subwords, source.model), (target.subwords, target.model))
        self.text = text
        self.workers = workers
        self.dropped: set[int] = set()
        self._vocabulary = vocabulary or Vocabulary(treatment.joined)

    def write(self, split: str, files: tuple[Path, Path], lines: int) -> Counts:
        """Segment the `lines` pairs of two files and write all but unfit training pairs.

        Raises:
            InputError: if nothing is left to train on, an evaluation pair has no symbols, or a
                pair has a word that fairseq reserves.
        """
        training, numbers = split == "train", count(1)
        pairs, longest, unknown, unreachable = 0, [0, 0], [0, 0], 0
        drops: Counter[str] = Counter()
        read = in_chunks(read_pairs(*files), f"segmenting {split}", lines)
        for chunk in ordered_map(partial(segment_chunk, self.models), read, self.workers):
            kept = []
            for pair in chunk:
                number = next(numbers)
                symbols = (pair[0].split(), pair[1].split())
                lengths = (len(symbols[0]), len(symbols[1]))
                reason = unfit(lengths, self.treatment) if training else None
                if reason:
                    drops[reason] += 1
                    self.dropped.add(number - 1)
                    continue
                if 0 in lengths:
                    raise InputError(
                        f"pair {number} of {split} has a side of invisible characters alone: "
                        "remove that line from both files."
                    )
                check_words(symbols, f"pair {number} of {split}")
                kept.append(pair)
                longest = [max(both) for both in zip(longest, lengths)]
                if training:
                    self._vocabulary.add(symbols)
                else:
                    more = self._vocabulary.unknown(symbols)
                    unknown = [sum(both) for both in zip(unknown, more)]
                    unreachable += more[1] > 0
            write_pairs(self.text / split, kept)
            pairs += len(kept)
        # What came in has gone out or is reported as dropped.
        assert lines == pairs + sum(drops.values()), (split, lines, pairs, drops)
        if pairs == 0:
            raise InputError(
                f"all {lines} pairs of {split} were dropped: allow longer or more uneven ones."
            )
        return Counts(
            pairs, longest[0], longest[1], unknown[0], unknown[1],
            drops["blank"], drops["too_long"], drops["uneven"], unreachable,
        )  # fmt: skip
