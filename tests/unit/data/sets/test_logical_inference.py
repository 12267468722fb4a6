"""The logical inference reader against truth tables of its own and every published count."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.kit.examples import Example, Parts, cut
from sut_data.sets import logical_inference

# Published lines by operators, and lines of the test files that match each pattern.
TRAIN_LINES = [30, 2319, 12451, 23252, 30373, 34152, 32952]
TEST_LINES = [6, 410, 2198, 4104, 5361, 6027, 5816, 4707, 3347, 2230, 1444, 864, 853]
MATCHES = {
    "A": [0, 0, 26, 132, 209, 313, 423, 373, 319, 232, 196, 114, 135],
    "B": [0, 0, 193, 839, 1673, 2549, 3033, 2851, 2275, 1593, 1118, 681, 739],
    "C": [0, 0, 349, 1629, 3156, 4387, 4954, 4293, 3170, 2163, 1425, 857, 849],
}
KEPT = {"full": 135_529, "A": 128_969, "B": 87_948, "C": 51_896}

FORMULAS = st.recursive(
    st.sampled_from("abcdef"),
    lambda parts: st.one_of(
        parts.map("( not {} )".format),
        st.tuples(parts, st.sampled_from(["and", "or"]), parts).map(
            lambda words: "( {} ( {} {} ) )".format(*words)
        ),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def published(shared_data: Path) -> dict[str, list[Example]]:
    """The published lines of every file that is used, checked as they are read."""
    return read_all(shared_data / "logical_inference", ".gz")


@pytest.fixture(scope="module")
def sample(samples: Path) -> dict[str, list[Example]]:
    """The lines of the sample's files, checked as they are read."""
    return read_all(samples / "logical_inference")


def read_all(folder: Path, suffix: str = "") -> dict[str, list[Example]]:
    return {
        f"{kind}{number}": logical_inference.read_file(folder / f"{kind}{number}{suffix}", number)
        for kind, lines in (("train", TRAIN_LINES), ("test", TEST_LINES))
        for number in range(len(lines))
    }


def models(formula: str) -> set[tuple[bool, ...]]:
    """The assignments that make a formula true, by Python's own evaluation of its words."""
    code = compile(formula, "formula", "eval")
    return {
        row
        for row in itertools.product((False, True), repeat=6)
        if eval(code, {}, dict(zip("abcdef", row)))
    }


def relation_of_sets(premise: str, hypothesis: str) -> str:
    """The relation between two formulas as MacCartney's table states it of sets."""
    left, right = models(in_order(premise)), models(in_order(hypothesis))
    rules = {
        "=": left == right,
        "<": left < right,
        ">": left > right,
        "^": not left & right and len(left | right) == 64,
        "|": not left & right and len(left | right) < 64,
        "v": bool(left & right) and len(left | right) == 64,
        "#": True,
    }
    return next(label for label, holds in rules.items() if holds)


def in_order(formula: str) -> str:
    """A formula as Python reads it: `( a ( and b ) )` without the brackets around `and b`."""
    opened: list[bool] = []  # whether each open bracket is one that Python must not see
    words = formula.split()
    kept = []
    for word, after in zip(words, [*words[1:], ""]):
        if word == "(":
            opened.append(after in ("and", "or"))
        hidden = word in "()" and opened[-1]
        if word == ")":
            opened.pop()
        kept.append("" if hidden else word)
    return " ".join(kept).strip()


@pytest.mark.parametrize(
    ("premise", "hypothesis", "label"),
    [
        ("a", "a", "="),
        ("( not ( not a ) )", "a", "="),
        ("( a ( and b ) )", "a", "<"),
        ("a", "( a ( or b ) )", "<"),
        ("( a ( or b ) )", "b", ">"),
        ("a", "( not a )", "^"),
        ("( a ( and b ) )", "( not a )", "|"),
        ("( a ( or b ) )", "( not a )", "v"),
        ("a", "b", "#"),
    ],
)
def test_relations(premise: str, hypothesis: str, label: str) -> None:
    assert logical_inference.relation(premise, hypothesis) == label
    assert relation_of_sets(premise, hypothesis) == label


@given(FORMULAS, FORMULAS)
def test_relations_are_those_of_sets(premise: str, hypothesis: str) -> None:
    assert logical_inference.relation(premise, hypothesis) == relation_of_sets(premise, hypothesis)


@pytest.mark.parametrize(
    "text",
    ["", "g", "a b", "( a )", "not a", "( not a", "a )", ")", "( and a )", "( a ( xor b ) )"]
    + ["( a and b )", "( not ( and a ) )", "( ( and a ) b )", "( a ( not b ) )", "( ) ", "and"],
)
def test_other_texts_are_no_formulas(text: str) -> None:
    with pytest.raises(ValueError, match="is not a formula"):
        logical_inference.truth_table(text)


@pytest.mark.parametrize(
    ("formula", "splits"),
    [
        ("( b ( and ( not a ) ) )", "A B C"),
        ("( b ( and ( not c ) ) )", "B C"),
        ("( b ( and ( not ( not a ) ) ) )", "B C"),
        ("( b ( or ( not a ) ) )", "C"),
        ("( ( not a ) ( and b ) )", ""),
        ("( not ( a ( and b ) ) )", ""),
    ],
)
def test_patterns(formula: str, splits: str) -> None:
    for sides in ((formula, "c"), ("c", formula)):
        found = [s for s in "ABC" if logical_inference.matches_pattern(s, *sides)]
        assert found == splits.split()


def test_all_published_lines(published: dict[str, list[Example]]) -> None:
    """Number of lines of each file, and matches of A, B, C in each test file."""
    assert [len(published[f"train{n}"]) for n in range(7)] == TRAIN_LINES
    assert [len(published[f"test{n}"]) for n in range(13)] == TEST_LINES
    for column, split in enumerate("ABC", start=1):
        tests = [published[f"test{n}"] for n in range(13)]
        found = [sum(line.values[column] == "yes" for line in lines) for lines in tests]
        assert found == MATCHES[split]


def test_labels_of_the_sample_by_sets(sample: dict[str, list[Example]]) -> None:
    lines = [line for part in sample.values() for line in part]
    assert len(lines) > 100
    for line in lines:
        premise, hypothesis = line.source.split(" #SEP# ")
        assert relation_of_sets(premise, hypothesis) == line.target


def test_short_lines_of_the_sample(sample: dict[str, list[Example]]) -> None:
    """Those of at most 3 operators on both sides; there are lines with exactly 3."""
    for number in range(7):
        for line in sample[f"train{number}"]:
            sides = line.source.split(" #SEP# ")
            most = max(len(re.findall("and|or|not", side)) for side in sides)
            assert most == number and logical_inference.is_short(line) == (most <= 3)


@pytest.mark.parametrize("split", list(KEPT))
def test_splits_of_the_sample(sample: dict[str, list[Example]], split: str) -> None:
    train = [line for n in range(7) for line in sample[f"train{n}"]]
    parts = logical_inference.make_parts(train, sample["test12"], split)
    assert parts["test"] == sample["test12"]
    assert_parts_of(train, parts, split)
    assert len(parts["valid"]) == (len(parts["train"]) + len(parts["valid"])) // 10
    if split == "full":
        assert parts["valid"] == train[9::10]
    else:
        assert parts["heldout"]


def assert_parts_of(train: list[Example], parts: Parts, split: str) -> None:
    """Nothing is lost or doubled, and what a split holds out is in no line that is kept."""
    kept = Counter(parts["train"]) + Counter(parts["valid"])
    assert kept + Counter(parts.get("heldout", [])) == Counter(train)
    if split != "full":
        after = "a ) )" if split == "A" else ""
        for word in ("and", "or") if split == "C" else ("and",):
            assert not any(f"( {word} ( not {after}" in line.source for line in kept)


def test_labels_of_published_lines_by_sets(published: dict[str, list[Example]]) -> None:
    lines = [line for part in published.values() for line in part]
    for line in random.Random(1).sample(lines, 2000):
        premise, hypothesis = line.source.split(" #SEP# ")
        assert relation_of_sets(premise, hypothesis) == line.target


# All splits of the sample are made above, and of the published lines the largest by default.
@pytest.mark.parametrize(
    "split",
    [pytest.param(s, marks=[pytest.mark.slow] if s != "full" else []) for s in KEPT],
)
def test_splits_of_the_published_lines(published: dict[str, list[Example]], split: str) -> None:
    train = [line for n in range(7) for line in published[f"train{n}"]]
    parts = logical_inference.make_parts(train, [], split)
    assert len(parts["train"]) + len(parts["valid"]) == KEPT[split]
    assert len(parts["valid"]) == KEPT[split] // 10
    assert_parts_of(train, parts, split)
    # However few lines a limit leaves, each label is trained and `short` is not empty.
    for limit in (1, 9):
        limited = cut({"train": parts["train"]}, limit, labels=True)["train"]
        assert {example.target for example in limited} == {*"=<>^|v#"}
        assert any(map(logical_inference.is_short, limited))
    if split == "full":
        assert (len(parts["train"]), len(parts["valid"])) == (121_977, 13_552)
        # The running counter over train0 to train6 starts at 1: line 10 is the first.
        assert parts["valid"][:2] == [train[9], train[19]]


def write(folder: Path, text: str) -> Path:
    path = folder / "train1"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("#\ta", "line 2: expected `relation TAB premise TAB hypothesis`, but found `#\ta`"),
        ("", "line 2: expected `relation TAB premise TAB hypothesis`"),
        ("#\tg\t( not b )", "line 2: `g` is not a formula over a to f"),
        ("=\ta\t( not b )", "line 2: the relation is `#` and not `=`"),
        ("#\ta\tb", "line 2 has 0 operators where the file's name says 1"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, f"#\ta\t( not b )\n{line}\n")
    with pytest.raises(InputError) as error:
        logical_inference.read_file(path, 1)
    assert message in str(error.value)


GOOD_LINES = st.sampled_from(["#\ta\t( not b )", "^\ta\t( not a )", "<\t( a ( and b ) )\tb"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.one_of(GOOD_LINES, GOOD_LINES, st.text(max_size=30)), max_size=4))
def test_no_line_is_lost_and_nothing_else_is_raised(tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path, "".join(f"{line}\n" for line in lines))
    try:
        examples = logical_inference.read_file(path, 1)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [example.target for example in examples] == [line[0] for line in lines]
