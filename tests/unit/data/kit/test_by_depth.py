"""How samples are shared among depths and parts."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Generator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.kit.by_depth import Depths, Sizes, distinct, divide, make_parts, proportional, share
from sut_data.kit.examples import Example

POPULATIONS: dict[int, int | None] = {0: 10, 1: 40, 2: None, 3: None, 4: None}
DEPTHS = Depths([0, 1, 2], [3], [4])


def stream(depth: int) -> Generator[Example, None, None]:
    """Samples `DEPTH:0`, `DEPTH:1`, ..., each of them twice, again and again where few exist."""
    for number in count():
        index = number // 2 % (POPULATIONS[depth] or 10**9)
        yield Example(f"{depth}:{index}", str(index % 10), (str(depth),))


def arguments(*sizes: int, limit: int | None = None, seed: int = 1) -> argparse.Namespace:
    return argparse.Namespace(sizes=list(sizes), limit=limit, seed=seed)


@pytest.mark.parametrize(
    ("total", "populations", "shares"),
    [
        (10, {1: None, 2: None}, [5, 5]),
        (11, {1: None, 2: None, 3: None}, [3, 4, 4]),
        (54_704, {1: 72, 2: 648, 3: 5832, 4: 52488, 5: 472392}, [72, 648, 5832, 24076, 24076]),
        (100, {0: 10, 1: 50, 2: 20}, None),
        (80, {0: 10, 1: 50, 2: 20}, [10, 50, 20]),
    ],
)
def test_shares(total: int, populations: dict[int, int | None], shares: list[int] | None) -> None:
    if shares is None:
        with pytest.raises(InputError, match="100 samples of depth 0 to 2 are wanted, but only 80"):
            share(total, populations)
    else:
        assert list(share(total, populations).values()) == shares


@given(st.lists(st.one_of(st.none(), st.integers(1, 50)), min_size=1, max_size=6), st.data())
def test_shares_are_as_equal_as_they_can_be(sizes: list[int | None], data: st.DataObject) -> None:
    exist = 400 if None in sizes else sum(size or 0 for size in sizes)
    total = data.draw(st.integers(1, exist))
    shares = share(total, dict(enumerate(sizes)))
    assert sum(shares.values()) == total
    largest = max(shares.values())
    for depth, size in enumerate(sizes):
        assert shares[depth] == size or shares[depth] >= largest - 1
        assert size is None or shares[depth] <= size


@given(st.lists(st.integers(0, 1000), min_size=1).filter(any), st.integers(0, 500))
def test_proportions(counts: list[int], total: int) -> None:
    shares = proportional(total, dict(enumerate(counts)))
    assert sum(shares.values()) == total
    for depth, number in enumerate(counts):
        assert abs(shares[depth] - total * number / sum(counts)) < 1


def test_all_of_the_least_depth_are_trained_on() -> None:
    numbers = divide(Sizes(200, 20, 7, 9), DEPTHS, POPULATIONS)
    assert numbers == {
        "train": {0: 10, 1: 36, 2: 154},
        "valid": {1: 4, 2: 16},
        "valid_deep": {3: 7},
        "test": {4: 9},
    }


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((20, 1, 1, 1), "training set of 20 samples, where there is no room for all 10 of depth 0"),
        ((31, 30, 1, 1), None),
        ((10, 51, 1, 1), "validation set of 51 samples, which leaves nothing to train on"),
    ],
)
def test_impossible_sizes(sizes: tuple[int, int, int, int], sentence: str | None) -> None:
    if sentence is None:
        divide(Sizes(*sizes), DEPTHS, POPULATIONS)
    else:
        with pytest.raises(InputError, match=sentence):
            divide(Sizes(*sizes), DEPTHS, POPULATIONS)


def test_each_sample_once_and_the_stream_is_closed() -> None:
    samples = stream(1)
    assert [sample.source for sample in distinct(samples, 40)] == [f"1:{n}" for n in range(40)]
    assert not list(samples)


def test_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes as divided, nothing twice, all of depths 0 and 1 used; the counts are printed."""
    parts = make_parts(arguments(200, 20, 7, 9), DEPTHS, POPULATIONS, stream)
    everything = [sample for part in parts.values() for sample in part]
    assert len(set(everything)) == len(everything) == 236
    depths = {name: Counter(sample.values[0] for sample in part) for name, part in parts.items()}
    assert depths == {
        "train": {"0": 10, "1": 36, "2": 154},
        "valid": {"1": 4, "2": 16},
        "valid_deep": {"3": 7},
        "test": {"4": 9},
    }
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["samples", "by", "depth:"],
        ["depth", "train", "valid", "valid_deep", "test"],
        ["0", "10", "0", "0", "0"],
        ["1", "36", "4", "0", "0"],
        ["2", "154", "16", "0", "0"],
        ["3", "0", "0", "7", "0"],
        ["4", "0", "0", "0", "9"],
        ["all", "200", "20", "7", "9"],
    ]
    # Another seed divides and orders the same samples in another way.
    other = make_parts(arguments(200, 20, 7, 9, seed=2), DEPTHS, POPULATIONS, stream)
    assert other != parts and sorted(other["test"]) == sorted(parts["test"])
    assert sorted(other["valid"]) != sorted(parts["valid"])
    # The sets of other depths do not depend on train.
    assert make_parts(arguments(90, 9, 7, 9), DEPTHS, POPULATIONS, stream)["test"] == parts["test"]


def test_a_limit_makes_fewer_but_leaves_enough_to_train_every_label() -> None:
    parts = make_parts(arguments(5000, 50, 50, 50, limit=5), DEPTHS, POPULATIONS, stream)
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 1000, "valid": 5, "valid_deep": 5, "test": 5,
    }  # fmt: skip
