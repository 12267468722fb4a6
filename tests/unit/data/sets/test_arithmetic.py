"""Simple arithmetic against Python's own, and against expressions drawn by rejection."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from itertools import islice

import pytest

from sut_data.kit.by_depth import Depths, make_parts
from sut_data.kit.examples import Parts
from sut_data.sets import arithmetic

DEPTHS = Depths(range(6), [6], [7, 8])


def generate(seed: int, *sizes: int) -> Parts:
    args = argparse.Namespace(sizes=sizes, seed=seed, limit=None)
    populations = {depth: arithmetic.POPULATIONS.get(depth) for depth in range(9)}
    return make_parts(args, DEPTHS, populations, lambda depth: arithmetic.draw(depth, seed))


@pytest.fixture(scope="module")
def parts() -> Parts:
    return generate(1, 12_000, 600, 300, 300)


def depth_of(expression: str) -> int:
    """The greatest number of open brackets: every operation has its own."""
    depth = deepest = 0
    for character in expression:
        depth += {"(": 1, ")": -1}.get(character, 0)
        deepest = max(deepest, depth)
    return deepest


@pytest.mark.parametrize(
    ("expression", "depth"),
    [("7", 0), ("( 3 + 4 )", 1), ("( ( 4 * 7 ) + 2 )", 2), ("( ( 1 + 2 ) * ( 3 + 4 ) )", 2)],
)
def test_what_depth_is(expression: str, depth: int) -> None:
    """The second last is the paper's example; the last has 3 operations and depth 2."""
    assert depth_of(expression) == depth


def test_sizes_depths_and_disjointness(parts: Parts) -> None:
    depths = {
        name: Counter(depth_of(sample.source) for sample in part) for name, part in parts.items()
    }
    share = (12_600 - 210) // 4
    together = depths["train"] + depths["valid"]
    assert [together[depth] for depth in range(6)] == [10, 200, share, share, share + 1, share + 1]
    assert depths["train"][0] == 10
    assert set(depths["valid"]) == {1, 2, 3, 4, 5} and sum(depths["valid"].values()) == 600
    assert (depths["valid_deep"], depths["test"]) == ({6: 300}, {7: 150, 8: 150})
    everything = [sample for part in parts.values() for sample in part]
    assert len({sample.source for sample in everything}) == len(everything)
    assert all(sample.values == (str(depth_of(sample.source)),) for sample in everything)


def test_form_and_values(parts: Parts) -> None:
    """Values by Python, whose sums and products have the same last digit as those modulo 10."""
    longest = 0
    for sample in (sample for part in parts.values() for sample in part):
        words = sample.source.split()
        assert {*words} <= {*"()+*0123456789"}
        assert words.count("(") == words.count(")") == words.count("+") + words.count("*")
        longest = max(longest, len(words))
        assert sample.target == str(eval(sample.source))[-1]
    assert 45 <= longest <= 50


def drawn_plainly(uniform: random.Random, is_operation: bool) -> str:
    """An expression with no regard to depth and length."""
    if not is_operation:
        return str(uniform.randrange(10))
    left, right = (drawn_plainly(uniform, uniform.random() < 0.2) for _ in range(2))
    return f"( {left} {uniform.choice('+*')} {right} )"


def test_the_distribution_is_that_of_rejection_sampling() -> None:
    """Number of operations of the whole and of its first argument, at depths 3 and 5."""
    uniform = random.Random(1)
    plain = [drawn_plainly(uniform, True) for _ in range(100_000)]

    def forms(expressions: list[str]) -> Counter[tuple[int, bool, bool]]:
        return Counter(
            (text.count("("), text[2] == "(", text[-3] == ")")
            for text in expressions
            if len(text.split()) <= 50
        )

    for depth in (3, 5):
        rejected = [text for text in plain if depth_of(text) == depth]
        size = len(rejected)
        assert size > 800
        drawn = [sample.source for sample in islice(arithmetic.draw(depth, 1), size)]
        expected, found = forms(rejected), forms(drawn)
        assert sum(found.values()) == size
        for form in expected | found:
            assert abs(expected[form] - found[form]) < 5 * (expected[form] + 5) ** 0.5
        assert found.most_common(1)[0][1] < 0.7 * size


def test_digits_and_operations_are_equally_frequent() -> None:
    samples = [sample.source for sample in islice(arithmetic.draw(4, 1), 4000)]
    words = Counter(word for sample in samples for word in sample.split())
    digits = sum(words[digit] for digit in "0123456789")
    for digit in "0123456789":
        assert words[digit] == pytest.approx(digits / 10, rel=0.08)
    assert words["+"] == pytest.approx(words["*"], rel=0.08)


def test_the_longest_possible_are_drawn() -> None:
    """12 operations make 49 tokens; 13 would make 53."""
    lengths = {len(sample.source.split()) for sample in islice(arithmetic.draw(8, 1), 2000)}
    assert lengths == {33, 37, 41, 45, 49}


def test_the_seed_decides(parts: Parts) -> None:
    sizes = (300, 30, 20, 20)
    assert generate(3, *sizes) == generate(3, *sizes) != generate(4, *sizes)
    # The same on every machine and Python version.
    first = parts["test"][0]
    assert first.source == (
        "( ( ( 9 * 6 ) * ( ( ( 8 * ( 4 * 8 ) ) + ( 4 * ( 8 + ( 2 + 0 ) ) ) ) * 4 ) ) * 9 )"
    )
