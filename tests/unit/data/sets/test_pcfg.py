"""PCFG SET: functions against an evaluator of another kind, splits against the published counts."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.kit.examples import Example, take_validation
from sut_data.sets import pcfg

LETTERS = st.lists(st.sampled_from(["A1", "B2", "C3", "D4"]), min_size=1, max_size=4)
SOURCES = st.recursive(
    LETTERS.map(" ".join),
    lambda parts: st.one_of(
        st.tuples(st.sampled_from(list(pcfg.UNARY)), parts).map(" ".join),
        st.tuples(st.sampled_from([*pcfg.BINARY, "append_twin"]), parts, parts).map(
            lambda words: "{} {} , {}".format(*words)
        ),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def pool(shared_data: Path) -> list[Example]:
    """The published evaluation files of three splits."""
    folder = shared_data / "pcfg_set"
    files = [
        [folder / f"{stem}.{side}.gz" for side in ("src", "tgt")] for stem in pcfg.POOLED_FILES
    ]
    return [example for pair in files for example in pcfg.read_file(*pair)]


def parse(words: list[str]) -> list[str]:
    """Evaluate from the left, by the grammar; takes what it reads out of `words`."""
    if words[0].removesuffix("_twin") not in (*pcfg.UNARY, *pcfg.BINARY):
        letters = []
        while words and words[0] != ",":
            letters.append(words.pop(0))
        return letters
    function = words.pop(0).removesuffix("_twin")
    first = parse(words)
    if function in pcfg.UNARY:
        last = len(first) - 1
        return {
            "copy": first,
            "reverse": [first[last - i] for i in range(len(first))],
            "shift": [*first[1:], first[0]],
            "swap_first_last": [first[{0: last, last: 0}.get(i, i)] for i in range(len(first))],
            "repeat": [*first, *first],
            "echo": [*first, first[last]],
        }[function]
    assert words.pop(0) == ","
    second = parse(words)
    return {
        "append": [*first, *second],
        "prepend": [*second, *first],
        "remove_first": second,
        "remove_second": first,
    }[function]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("A1", "A1"),
        ("copy A1 B2", "A1 B2"),
        ("reverse A1 B2 C3", "C3 B2 A1"),
        ("shift A1 B2 C3", "B2 C3 A1"),
        ("swap_first_last A1 B2 C3", "C3 B2 A1"),
        ("swap_first_last A1", "A1"),
        ("repeat A1 B2", "A1 B2 A1 B2"),
        ("echo A1 B2", "A1 B2 B2"),
        ("append A1 , B2", "A1 B2"),
        ("prepend A1 , B2", "B2 A1"),
        ("remove_first A1 , B2", "B2"),
        ("remove_second A1 , B2", "A1"),
        ("append_twin repeat_twin A1 , B2", "A1 A1 B2"),
        ("append reverse A1 B2 , remove_first C3 , echo D4", "B2 A1 D4 D4"),
    ],
)
def test_functions(source: str, target: str) -> None:
    assert pcfg.evaluate(source) == target
    assert " ".join(parse(source.split())) == target


@given(SOURCES)
def test_nested_functions(source: str) -> None:
    words = source.split()
    assert pcfg.evaluate(source) == " ".join(parse(words))
    assert not words


@pytest.mark.parametrize(
    "source",
    ["", ",", "copy", "A1 ,", ", A1", "A1 , B2", "copy A1 , B2", "append A1 B2", "append A1 ,"]
    + ["append A1 , , B2", "append , A1", "append A1 , B2 , C3", "copy A1 copy", "A1 copy B2"]
    + ["append copy A1 reverse B2", "copy , A1", "append , A1 , B2"],
)
def test_other_texts_are_refused(source: str) -> None:
    with pytest.raises(ValueError, match="is not a source of PCFG SET"):
        pcfg.evaluate(source)


def test_lines_of_the_sample(samples: Path) -> None:
    parts = pcfg.read_split(pcfg.raw_files(samples / "pcfg_set", "10k"), "10k", limit=1)
    assert [len(part) for part in parts.values()] == [60, 10, 10]
    for example in (example for part in parts.values() for example in part):
        assert example.target == " ".join(parse(example.source.split()))
        words = [word.removesuffix("_twin") for word in example.source.split()]
        functions = sum(word in {*pcfg.UNARY, *pcfg.BINARY} for word in words)
        assert example.values == (str(functions),)


@pytest.mark.parametrize("split", pcfg.POOLED_SPLITS)
def test_pooled_splits_of_the_sample(samples: Path, split: str) -> None:
    parts = pcfg.read_split(pcfg.raw_files(samples / "pcfg_set", split), split, limit=1)
    assert sum(map(len, parts.values())) == len({*parts["train"], *parts["test"]}) > 40
    assert parts["test"]
    for part, examples in parts.items():
        for example in examples:
            if split == "pooled_productivity":
                assert (int(example.values[0]) > 8) == (part == "test")
            else:
                held_out = any(" ".join(p) in example.source for p in pcfg.HELD_OUT_PAIRS)
                assert held_out == (part == "test")


def test_a_sample_of_published_lines(shared_data: Path) -> None:
    folder = shared_data / "pcfg_set"
    lines = []
    for stem in ("substitutivity/primitive/test_twin", pcfg.INCREASING):
        sides = [gzip.decompress((folder / f"{stem}.{s}.gz").read_bytes()) for s in ("src", "tgt")]
        lines += list(zip(*(side.decode().splitlines() for side in sides)))
    assert len(lines) == 20_070
    for source, target in random.Random(1).sample(lines, 2000):
        assert pcfg.evaluate(source) == " ".join(parse(source.split())) == target


@pytest.mark.parametrize(
    ("split", "train", "test"),
    [("pooled_systematicity", 20_555, 10_696), ("pooled_productivity", 19_307, 11_944)],
)
def test_pooled_splits(pool: list[Example], split: str, train: int, test: int) -> None:
    parts = pcfg.divide_pool(pool, split)
    assert (len(parts["train"]), len(parts["test"])) == (train, test)
    assert len({*parts["train"], *parts["test"]}) == 31_251
    longest = max(int(example.values[0]) for example in parts["train"])
    if split == "pooled_productivity":
        assert longest == 8
        functions = {int(example.values[0]) for example in parts["test"]}
        assert (min(functions), max(functions)) == (9, 35)
    else:
        assert longest > 8
        pairs = [" ".join(pair) for pair in pcfg.HELD_OUT_PAIRS]
        assert not any(pair in example.source for pair in pairs for example in parts["train"])


def test_10k_split(shared_data: Path) -> None:
    parts = pcfg.read_split(pcfg.raw_files(shared_data / "pcfg_set", "10k"), "10k", None)
    assert [len(part) for part in parts.values()] == [7779, 457, 916]
    first = parts["train"][0]
    assert first.source == "append V6 I12 G9 , remove_first reverse Z18 Q18 H18 , K9 B2 M19 S12"
    assert (first.target, first.values) == ("V6 I12 G9 K9 B2 M19 S12", ("3",))
    assert take_validation(parts, 5) is parts


def test_validation_comes_out_of_training() -> None:
    train = [Example(f"A{n}", f"A{n}", ("0",)) for n in range(50)]
    parts = take_validation({"train": train, "test": train[:1]}, 7)
    assert len(parts["valid"]) == 7
    assert Counter(parts["train"] + parts["valid"]) == Counter(train)
    for size in (0, 50):
        with pytest.raises(InputError, match="--valid-size must be between 1 and 49"):
            take_validation({"train": train}, size)


def write(folder: Path, sources: list[str], targets: list[str]) -> tuple[Path, Path]:
    paths = folder / "a.src", folder / "a.tgt"
    for path, lines in zip(paths, (sources, targets)):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        (["A1"], ["A1", "A1"], "a.src has 1 lines but .*a.tgt has 2"),
        (["A1", "A1"], ["A1"], "a.src has 2 lines but .*a.tgt has 1"),
        (["A1", "copy"], ["A1", "A1"], "a.src, line 2: `copy` is not a source of PCFG SET"),
        (["echo A1"], ["A1"], "a.tgt, line 1: `A1` is not what its source stands for"),
    ],
)
def test_wrong_files_are_refused(
    tmp_path: Path, sources: list[str], targets: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        pcfg.read_file(*write(tmp_path, sources, targets))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.one_of(st.just("echo A1"), st.text(max_size=9)), max_size=3),
    st.lists(st.one_of(st.just("A1 A1"), st.just("A1 A1"), st.text(max_size=9)), max_size=3),
)
def test_no_line_is_lost_and_nothing_else_is_raised(
    tmp_path: Path, sources: list[str], targets: list[str]
) -> None:
    try:
        examples = pcfg.read_file(*write(tmp_path, sources, targets))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [example.source for example in examples] == [" ".join(s.split()) for s in sources]
        assert len(examples) == len(targets)
