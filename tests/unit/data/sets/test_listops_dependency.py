"""ListOps by dependency depth against trees that are evaluated and pruned by the definition."""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import islice, permutations
from typing import Any

import pytest

from sut_data.kit.by_depth import Depths, make_parts
from sut_data.kit.examples import Example, Parts
from sut_data.sets.listops_dependency import expressions as dependency_depth

Tree = int | tuple[str, list[Any]]


def parse(expression: str) -> Tree:
    """A digit, or an operator and its arguments."""
    python = re.sub(r"\[([A-Z]+)", r'("\1", [', expression).replace("]", "]),")
    tree = eval(re.sub(r"(\d)", r"\1,", python))[0]
    assert isinstance(tree, (int, tuple))
    return tree


def value_of(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    values = [value_of(argument) for argument in tree[1]]
    functions: dict[str, Callable[[list[int]], int]] = {
        "MIN": lambda v: sorted(v)[0],
        "MAX": lambda v: sorted(v)[-1],
        "MED": lambda v: math.floor(statistics.median(v)),
        "SM": lambda v: int(str(sum(v))[-1]),
    }
    return functions[tree[0]](values)


def dependency_depth_of(tree: Tree) -> int:
    """Sort the arguments in every order that sorts their values, and keep those at the places that
    the operator selects; the depth is that of the order whose kept arguments are the shallowest."""
    if isinstance(tree, int):
        return 0
    operator, arguments = tree
    last = len(arguments) - 1
    places = {
        "MIN": {0},
        "MAX": {last},
        "MED": {last // 2, (last + 1) // 2},
        "SM": set(range(last + 1)),
    }[operator]
    nodes = [(value_of(argument), dependency_depth_of(argument)) for argument in arguments]
    orders = [order for order in permutations(nodes) if sorted(order, key=first) == list(order)]
    return 1 + min(max(order[place][1] for place in places) for order in orders)


def first(pair: tuple[int, int]) -> int:
    return pair[0]


@pytest.mark.parametrize(
    ("expression", "value", "depth"),
    [
        ("7", 7, 0),
        ("[MAX 2 9 ]", 9, 1),
        ("[MAX 9 [MIN 1 2 ] ]", 9, 1),  # the MIN is not selected
        ("[MAX 0 [MIN 1 2 ] ]", 1, 2),
        ("[MAX 1 [MIN 1 2 ] ]", 1, 1),  # the digit is as great and shallower
        ("[MIN [SM 9 9 ] [MAX 1 [SM 3 4 ] ] 8 ]", 7, 3),
        ("[SM 1 [MAX 9 [MIN 1 2 ] ] ]", 0, 2),
        ("[SM 1 [MAX 0 [MIN 1 2 ] ] ]", 2, 3),
        ("[MED 1 [SM 9 9 ] 3 ]", 3, 1),  # 1 3 8
        ("[MED 1 [SM 2 2 ] 9 ]", 4, 2),  # 1 4 9
        ("[MED 1 9 [SM 2 2 ] 5 ]", 4, 2),  # 4 and 5
        ("[MED 3 4 [SM 0 1 ] 5 ]", 3, 1),  # 3 and 4
        ("[MED 4 [SM 2 2 ] 4 [MIN 0 [SM 1 1 ] ] ]", 4, 1),  # 0 4 4 4: two digits are there
        ("[MED [SM 1 3 ] [SM 2 2 ] 4 0 ]", 4, 2),  # 0 4 4 4: one digit is there, two are needed
        ("[MED 8 5 [SM 2 2 ] [MAX 8 4 9 ] ]", 6, 1),  # 4 5 8 9
        ("[MED 4 8 5 [MAX 8 4 9 ] ]", 6, 1),
    ],
)
def test_what_dependency_depth_is(expression: str, value: int, depth: int) -> None:
    """Worked out by hand; the generator's operators are asked node by node."""
    tree = parse(expression)
    assert (value_of(tree), dependency_depth_of(tree)) == (value, depth)

    def ask(node: Tree) -> tuple[int, int]:
        if isinstance(node, int):
            return node, 0
        operator, arguments = node
        value, depth = dependency_depth.OPERATORS[f"[{operator}"](list(map(ask, arguments)))
        return value, depth + 1

    assert ask(tree) == (value, depth)


@pytest.fixture(scope="module")
def parts() -> Parts:
    args = argparse.Namespace(sizes=[1500, 200, 60, 20], seed=1, limit=None)
    populations = {depth: 10 if depth == 0 else None for depth in range(8)}
    return make_parts(
        args,
        Depths(range(6), [6], [7]),
        populations,
        lambda depth: dependency_depth.draw(depth, 1, 1),
    )


def test_sizes_depths_and_disjointness(parts: Parts) -> None:
    """Depths, values and the form of every expression, by other means than the generator's."""
    depths = {}
    longest = 0
    for name, part in parts.items():
        depths[name] = Counter[int]()
        for sample in part:
            tree = parse(sample.source)
            depth = dependency_depth_of(tree)
            depths[name][depth] += 1
            assert sample.target == str(value_of(tree))
            assert sample.values == (str(depth),)
            longest = max(longest, len(sample.source.split()))
            arguments = re.findall(r"\[[A-Z]+(?: \d)+ \]", sample.source)
            assert {len(text.split()) - 2 for text in arguments} <= {2, 3, 4, 5}
    assert 45 <= longest <= 50
    together = depths["train"] + depths["valid"]
    assert together == {0: 10, 1: 338, 2: 338, 3: 338, 4: 338, 5: 338}
    assert depths["train"][0] == 10
    assert depths["valid"] == dict.fromkeys(range(1, 6), 40)
    assert (depths["valid_deep"], depths["test"]) == ({6: 60}, {7: 20})
    sources = [sample.source for part in parts.values() for sample in part]
    assert len(set(sources)) == len(sources)
    assert {word for source in sources for word in source.split()} == {
        *"0123456789", "]", "[MIN", "[MAX", "[MED", "[SM",
    }  # fmt: skip


def test_depth_8_exists() -> None:
    """The first piece of work finds one; one of 20,000 expressions has it."""
    samples = dependency_depth.draw_many((1, 8, 0))
    assert samples
    for sample in samples:
        assert dependency_depth_of(parse(sample.source)) == 8
        assert len(sample.source.split()) <= 50


def drawn_plainly(uniform: random.Random, level: int = 1) -> str:
    """An expression as the task describes it; more than 17 levels have more than 50 words."""
    words = [uniform.choice(["[MIN", "[MAX", "[MED", "[SM"])]
    for _ in range(uniform.randint(2, 5)):
        if uniform.random() < 0.3 and level < 18:
            words.append(drawn_plainly(uniform, level + 1))
        else:
            words.append(str(uniform.randrange(10)))
    return " ".join([*words, "]"])


def test_the_distribution_is_that_of_plain_expressions() -> None:
    """Operators, operators nested and words of expressions of depth 1, 2 and 3."""
    uniform = random.Random(2)
    expected: dict[int, list[str]] = {}
    for _ in range(8_000):
        text = drawn_plainly(uniform)
        if len(text.split()) <= 50:
            expected.setdefault(dependency_depth_of(parse(text)), []).append(text)
    for depth in (1, 2, 3):
        texts = expected[depth]
        assert len(texts) > 250
        found = islice(dependency_depth.draw(depth, 1, 1), len(texts))
        sources = [sample.source for sample in found]
        for feature in (outermost, number_of_operators, length):
            one, other = (Counter(map(feature, side)) for side in (texts, sources))
            for value in one | other:
                assert abs(one[value] - other[value]) < 5 * (one[value] + other[value] + 5) ** 0.5


def outermost(text: str) -> str:
    return text.split()[0]


def number_of_operators(text: str) -> int:
    return text.count("[")


def length(text: str) -> int:
    return len(text.split()) // 4


def test_the_number_of_processes_makes_no_difference(parts: Parts) -> None:
    """Samples of three pieces of work, about 280 in each."""

    def some(seed: int, processes: int) -> list[Example]:
        return list(islice(dependency_depth.draw(4, seed, processes), 700))

    assert some(3, 1) == some(3, 2) != some(4, 2)
    # The same on every machine and Python version.
    sample = parts["test"][0]
    assert sample.source == (
        "[SM 6 6 [SM [MAX 6 [MAX 4 7 [MAX 4 5 [SM 7 [MAX 1 5 1 ] 9 8 ] 7 [SM 7 7 3 ] ] ] "
        "[SM 4 [MAX 9 2 5 ] 1 [MIN 2 1 0 ] ] ] 0 ] ]"
    )
