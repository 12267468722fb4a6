"""Groups of sentences joined into ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sut_fairseq.analysis.evaluation import in_ranges


def groups(sizes: list[int]) -> list[tuple[str, list[int]]]:
    """Groups with these numbers of sentences, named from 1."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [
        (str(number), list(range(end - size, end)))
        for number, (size, end) in enumerate(zip(sizes, ends), start=1)
    ]


def test_ranges_have_about_equally_many_sentences() -> None:
    joined = in_ranges(groups([1] * 52), 10)
    assert [name for name, _ in joined][:2] == ["1 to 5", "6 to 10"]
    assert {len(members) for _, members in joined} == {5, 6}
    assert in_ranges(groups([1] * 52), 52) == groups([1] * 52)
    assert [name for name, _ in in_ranges(groups([90, 1, 1, 8]), 2)] == ["1", "2 to 4"]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 12))
def test_no_sentence_is_lost(sizes: list[int], most: int) -> None:
    joined = in_ranges(groups(sizes), most)
    assert 1 <= len(joined) <= most
    assert [n for _, members in joined for n in members] == list(range(sum(sizes)))
