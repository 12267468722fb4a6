"""Columns of a data set, by which scores are grouped, and the labels of a dictionary."""

from __future__ import annotations

from pathlib import Path

import pytest

from sut_fairseq.errors import InputError
from sut_fairseq.tasks.columns import column_names, order_of, read_column
from sut_fairseq.tasks.labels import labels_of
from tests.models import dictionary


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a column for a split of two pairs, and other files beside it."""
    (tmp_path / "text").mkdir()
    names = ("test.src", "test.tgt", "test.raw.src", "test.length", "test2.depth", "valid.depth")
    for name in names:
        (tmp_path / "text" / name).write_text("3\n12\n")
    return tmp_path


def test_the_columns_of_a_split(data: Path) -> None:
    """Neither its sides, nor their raw text, nor the columns of other splits."""
    assert column_names(data, "test") == ["length"]
    assert read_column(data, "test", "length", 2) == ["3", "12"]
    with pytest.raises(InputError, match="has no column `depth`; its columns are: length"):
        read_column(data, "test", "depth", 2)


@pytest.mark.parametrize("size", [1, 3])
def test_a_value_for_each_pair(size: int, data: Path) -> None:
    with pytest.raises(InputError, match=f"has 2 values, but the split has {size} sentence pairs"):
        read_column(data, "test", "length", size)


def test_the_order_of_groups() -> None:
    """Numbers by size, then words; what only looks like a number is a word."""
    expected = ["-1.5", "2", "10", "a", "b", "inf", "nan"]
    for values in (["nan", "b", "10", "inf", "2", "a", "-1.5"], expected[::-1]):
        assert sorted(values, key=order_of) == expected


def test_labels_are_words_of_the_training() -> None:
    """fairseq pads a dictionary to a round size with words that never occur."""
    words = dictionary(3, "v")
    labels = [words.index(f"v{number}") for number in range(3)]
    words.add_symbol("madeupword0000", n=0)
    assert labels_of(words).tolist() == labels
    words.count = [0] * len(words)
    with pytest.raises(InputError, match="no label that occurs in training"):
        labels_of(words)
