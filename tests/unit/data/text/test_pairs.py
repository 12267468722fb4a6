"""Pairs of a parallel text: which are kept, and which of their symbols are unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from sut_data.text.pairs import evenly_spaced
from sut_data.text.segmentation import Vocabulary, unfit
from sut_data.text.treatment import Treatment


@pytest.mark.parametrize(("total", "limit"), [(10, 3), (10, 1), (7, 5), (4, 4), (3, 9)])
def test_evenly_spaced_lines(total: int, limit: int) -> None:
    """As many lines as asked for, the last one included, with gaps that differ by one at most."""
    kept = [int(line) for line in evenly_spaced(map(str, range(total)), total, limit)]
    assert len(kept) == min(limit, total) and kept[-1] == total - 1
    gaps = [after - before for before, after in zip([-1, *kept], kept)]
    assert min(gaps) >= 1 and max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((2, 5), None),
        ((5, 2), None),
        ((2, 6), "uneven"),
        ((6, 2), "uneven"),
        ((8, 8), None),
        ((9, 8), "too_long"),
        ((1, 9), "too_long"),
        ((9, 0), "blank"),
    ],
)
def test_pairs_at_the_bounds_are_kept(lengths: tuple[int, int], reason: str | None) -> None:
    """A side may be as long as the most, and as many times the other as the most."""
    assert unfit(lengths, Treatment(max_length=8, max_ratio=2.5)) == reason


def test_words_that_fill_up_a_dictionary_are_unknown(tmp_path: Path) -> None:
    """No training text has them, so an evaluation pair with one of them cannot be got right."""
    for side in ("src", "tgt"):
        (tmp_path / f"dict.{side}.txt").write_text(f"{side} 3\nmadeupword0000 0\n")
    vocabulary = Vocabulary.of(tmp_path)
    assert vocabulary.unknown((["src", "madeupword0000"], ["tgt", "tgt", "src"])) == [1, 1]
