"""Compositional table lookup, evaluated with the tables that its own one-function samples show."""

from __future__ import annotations

import argparse
from collections import Counter
from functools import reduce
from itertools import islice

import pytest

from sut_data.kit.by_depth import make_parts
from sut_data.kit.examples import Example, Parts
from sut_data.sets import ctl

SIZES = {"train": 53_704, "valid": 1_000, "valid_deep": 3_000, "test": 2_000}


def generate(seed: int, *sizes: int) -> Parts:
    functions = ctl.make_functions(seed)
    args = argparse.Namespace(sizes=sizes or SIZES.values(), seed=seed, limit=None)
    populations = {depth: 8 * 9**depth for depth in range(1, 11)}
    return make_parts(args, ctl.DEPTHS, populations, lambda depth: ctl.draw(functions, depth, seed))


@pytest.fixture(scope="module")
def forward() -> Parts:
    return generate(1)


def tables(samples: list[Example]) -> dict[str, dict[str, str]]:
    """The functions, as the samples with one of them tell."""
    found: dict[str, dict[str, str]] = {}
    for sample in samples:
        words = sample.source.split()
        if len(words) == 2:
            found.setdefault(words[1], {})[words[0]] = sample.target
    return found


def test_sizes_and_depths(forward: Parts) -> None:
    assert {name: len(part) for name, part in forward.items()} == SIZES
    depths = {
        name: Counter(len(sample.source.split()) - 1 for sample in part)
        for name, part in forward.items()
    }
    assert depths["train"] + depths["valid"] == {1: 72, 2: 648, 3: 5832, 4: 24076, 5: 24076}
    assert depths["train"][1] == 72
    assert depths["valid_deep"] == {6: 1000, 7: 1000, 8: 1000}
    assert depths["test"] == {9: 1000, 10: 1000}
    for depth in range(2, 6):  # as in train
        assert depths["valid"][depth] == pytest.approx(depths["train"][depth] / 53.7, abs=1)
    for sample in (sample for part in forward.values() for sample in part):
        assert sample.values == (str(len(sample.source.split()) - 1),)


def test_no_sample_is_there_twice(forward: Parts) -> None:
    sources = [sample.source for part in forward.values() for sample in part]
    assert len(set(sources)) == len(sources)


def test_every_function_is_a_bijection_and_trained_with_every_symbol(forward: Parts) -> None:
    found = tables(forward["train"])
    symbols = {"000", "001", "010", "011", "100", "101", "110", "111"}
    assert found.keys() == {*"abcdefghi"}
    for table in found.values():
        assert table.keys() == {*table.values()} == symbols
    assert len({tuple(sorted(table.items())) for table in found.values()}) == 9


def test_targets(forward: Parts) -> None:
    """The first function is applied to the symbol, the next to the result, ..."""
    found = tables(forward["train"])
    for sample in (sample for part in forward.values() for sample in part):
        symbol, *functions = sample.source.split()
        assert sample.target == reduce(lambda value, name: found[name][value], functions, symbol)


def test_the_backward_direction_is_the_forward_one_read_backwards(forward: Parts) -> None:
    """`101 d a b` and `b a d 101` are both b(a(d(101))), in the same line of both folders."""
    backward = ctl.in_direction(forward, "backward")
    assert ctl.in_direction(forward, "forward") == forward
    for name, part in forward.items():
        for one, other in zip(part, backward[name]):
            assert other.source.split() == one.source.split()[::-1]
            assert (other.target, other.values) == (one.target, one.values)
    example = {"test": [Example("101 d a b", "000", ("3",))]}
    assert ctl.in_direction(example, "backward")["test"][0].source == "b a d 101"


def test_the_seed_decides(forward: Parts) -> None:
    sizes = (500, 50, 30, 20)
    assert generate(3, *sizes) == generate(3, *sizes) != generate(4, *sizes)
    assert ctl.make_functions(3) != ctl.make_functions(4)
    # The same on every machine and Python version.
    first = forward["train"][0]
    assert (first.source, first.target) == ("100 c c f a", "101")


def test_symbols_and_functions_are_equally_frequent() -> None:
    samples = islice(ctl.draw(ctl.make_functions(1), 2, 1), 20_000)
    words = Counter(word for sample in samples for word in sample.source.split())
    for word, number in words.items():
        expected = 20_000 / 8 if word.isdigit() else 2 * 20_000 / 9
        assert number == pytest.approx(expected, rel=0.08)
    assert len(words) == 17
