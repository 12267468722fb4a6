"""ListOps: values by an evaluator of another kind, and what the generator promises."""

from __future__ import annotations

import math
import random
import re
import statistics
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.kit.examples import Example
from sut_data.sets.listops import command as listops
from sut_data.sets.listops import expressions as listops_expressions
from sut_data.sets.listops.expressions import Lengths, evaluate, generate

EXPRESSIONS = st.recursive(
    st.integers(0, 9).map(str),
    lambda parts: st.tuples(
        st.sampled_from(list(listops_expressions.OPERATORS)),
        st.lists(parts, min_size=1, max_size=4),
    ).map(lambda words: f"{words[0]} {' '.join(words[1])} ]"),
    max_leaves=12,
)


class Node(int):
    """A digit that knows how many operators are in it."""

    depth = 0


def apply(name: str, arguments: list[int]) -> Node:
    values = [int(argument) for argument in arguments]
    node = Node(
        {
            "MIN": lambda: sorted(values)[0],
            "MAX": lambda: sorted(values)[-1],
            "MED": lambda: math.floor(statistics.median(values)),
            "SM": lambda: int(str(sum(values))[-1]),
            "FIRST": lambda: values[0],
            "LAST": lambda: values[len(values) - 1],
        }[name]()
    )
    node.depth = 1 + max(getattr(argument, "depth", 0) for argument in arguments)
    return node


def by_python(expression: str) -> tuple[int, int]:
    """Value and depth of an expression that is turned into nested calls."""
    calls = re.sub(r"\[([A-Z]+)", r"apply('\1', [", expression).replace("]", "]),")
    node = eval(re.sub(r"(\d)", r"\1,", calls).rstrip(","), {"apply": apply})
    return int(node), getattr(node, "depth", 0)


@pytest.mark.parametrize(
    ("expression", "value", "depth"),
    [
        ("7", 7, 0),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9, 2),
        ("[MED 1 2 ]", 1, 1),
        ("[MED 9 1 5 ]", 5, 1),
        ("[MED 8 1 5 6 ]", 5, 1),
        ("[SM 7 8 9 ]", 4, 1),
        ("[FIRST 3 4 ]", 3, 1),
        ("[LAST 3 [SM 5 5 [MIN 6 ] ] ]", 6, 3),
    ],
)
def test_values(expression: str, value: int, depth: int) -> None:
    assert evaluate(expression) == by_python(expression) == (value, depth)


@given(EXPRESSIONS)
def test_nested_values(expression: str) -> None:
    assert evaluate(expression) == by_python(expression)


@pytest.mark.parametrize(
    "text", ["", "10", "1 2", "[MAX ]", "[MAX 1", "]", "1 ]", "[ADD 1 ]", "[MAX 1 ] ]", "-1", "١"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a ListOps expression"):
        evaluate(text)


@pytest.mark.parametrize("name", ["test_d20s", "test_d8"])
def test_published_files(shared_data: Path, name: str) -> None:
    examples = listops.read_file(shared_data / "listops" / f"{name}.tsv.gz")
    assert len(examples) == 10_000
    assert max(int(example.values[0]) for example in examples) == {"d20s": 19, "d8": 7}[name[5:]]
    for example in random.Random(1).sample(examples, 300):
        value, depth = by_python(example.source)
        assert (example.target, example.values) == (str(value), (str(depth),))


@pytest.mark.parametrize("name", ["test_d8", "test_d14", "test_d20"])
def test_samples(samples: Path, name: str) -> None:
    examples = listops.read_file(samples / "listops" / f"{name}.tsv")
    assert len(examples) == 50
    for example in examples:
        value, depth = by_python(example.source)
        assert (example.target, example.values) == (str(value), (str(depth),))
    assert len({example.values for example in examples}) > 3


def drawn(total: int, lengths: Lengths, processes: int = 1, seed: int = 1) -> list[Example]:
    return list(generate(total, seed, lengths, processes))


def test_generated_expressions() -> None:
    """Lengths, levels, arguments and operators are those of LRA; values are right; all differ."""
    examples = drawn(100, listops.LRA_LENGTHS)
    assert len({example.source for example in examples}) == 100
    arguments, operators = set(), set()
    for example in examples:
        words = example.source.split()
        assert 500 < len(words) < 2000
        value, depth = by_python(example.source)
        assert (example.target, example.values) == (str(value), (str(depth),))
        assert depth <= 9
        operators |= {word for word in words if word.startswith("[")}
        inner = example.source
        for _ in range(depth):  # replace the innermost operators by a digit
            arguments |= {len(m.split()) - 2 for m in re.findall(r"\[[A-Z]+(?: \d)+ \]", inner)}
            inner = re.sub(r"\[[A-Z]+(?: \d)+ \]", "0", inner)
        assert inner == "0"
    assert operators == {"[MIN", "[MAX", "[MED", "[SM"}
    assert arguments == set(range(2, 11))


def test_how_often_an_argument_is_an_operator() -> None:
    """One in four, where the level allows it: looked at on the second level."""
    uniform = random.Random(3).random
    operators = digits = 0
    for _ in range(2000):
        level = 0
        for word in listops_expressions.draw(uniform, 10**6):
            level += word.startswith("[")
            digits += level == 1 and word.isdigit()
            operators += level == 2 and word.startswith("[")
            level -= word == "]"
    assert operators / (operators + digits) == pytest.approx(0.25, abs=0.01)
    assert (operators + digits) / 2000 == pytest.approx(6, abs=0.2)  # 2 to 10 arguments


def test_the_number_of_processes_makes_no_difference() -> None:
    lengths = Lengths(20, 60)
    alone = drawn(700, lengths)
    assert alone == drawn(700, lengths, processes=2)
    assert alone[:50] == drawn(50, lengths)
    assert alone != drawn(700, lengths, seed=2)
    # The same on every machine and Python version.
    assert alone[0].source.startswith("[MED 3 [SM 0 8 0 1 1 1 4 8 ] 4 9 6 [SM 1 9 9 [SM 5 5 ]")


def test_too_few_expressions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops_expressions, "PATIENCE", 3)
    with pytest.raises(InputError, match=r"only \d+ of 9,999 expressions longer than 3 and short"):
        drawn(9_999, Lengths(3, 5))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("9\t( [MAX 2 ) ]\textra", "line 2: expected `value TAB expression`, but"),
        ("", "line 2: expected `value TAB expression`, but `` is not a ListOps expression"),
        ("9 ( ( [MAX 9 ) ] )", "line 2: expected `value TAB expression`"),
        ("8\t( ( [MAX 9 ) ] )", "line 2: the value is 9 and not `8`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"6\t( ( ( [SM 8 ) 8 ) ] )\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        listops.read_file(path)
    assert message in str(error.value)


GOOD_LINES = st.sampled_from(["6\t( ( ( [SM 8 ) 8 ) ] )", "3\t3", "2\t[MIN 2 ]"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.one_of(GOOD_LINES, GOOD_LINES, st.text(max_size=30)), max_size=4))
def test_no_line_is_lost_and_nothing_else_is_raised(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        examples = listops.read_file(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [example.target for example in examples] == [line[0] for line in lines]


def test_lengths_are_between_the_bounds() -> None:
    """All of them occur, and neither bound does."""
    drawn = listops_expressions.draw_many((1, 0, Lengths(4, 9)))
    assert {len(example.source.split()) for example in drawn} == {5, 6, 7, 8}
