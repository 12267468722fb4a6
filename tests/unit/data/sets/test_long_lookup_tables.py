"""Long lookup tables: variants, generated sets and published files under the same rules."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.sets.long_lookup_tables import command
from sut_data.sets.long_lookup_tables.generation import (
    LONGER,
    MOST_NOISE,
    TRAINED,
    UNTRAINED,
    Draw,
    Lookups,
    add_noise,
    make_lookups,
    make_tables,
)
from sut_data.sets.long_lookup_tables.variants import STRINGS, VARIANTS, Lookup, Tables, parse

# The paper's Tables 1 and 2 and its reversed example, in words of the tables that they show.
TABLES = {"t1": {"000": "110", "110": "110"}, "t2": {"110": "100"}}
EXAMPLES = [
    ("long", "000 t1 .", "000 110", "0 1 2"),
    ("long", "110 t2 .", "110 100", "0 1 2"),
    ("long", "000 t1 t1 t2 .", "000 110 110 100", "0 1 2 3 4"),
    ("reverse", "t2 t1 t1 000 .", "000 110 110 100", "3 2 1 0 4"),
    ("noisy", "000 t2 ! t1 .", "000 110", "0 3 4"),
    ("noisy", "110 t5 t3 t1 ! t1 .", "110 110", "0 5 6"),
    ("noisy", "110 ! t2 .", "110 100", "0 2 3"),
    ("noisy", "000 t6 t3 ! t1 t1 t2 .", "000 110 110 100", "0 4 5 6 7"),
]
Lookups_and_tables = tuple[Lookups, Tables]


@pytest.mark.parametrize(("name", "source", "target", "attention"), EXAMPLES)
def test_the_papers_examples(name: str, source: str, target: str, attention: str) -> None:
    """Each position of the gold attention is that of the word that was applied.

    (Three rows of the paper's own Table 2 have one position more than target words, that of the
    `!`. Its text and its third row go from the string to the table after the `!`.)
    """
    variant = VARIANTS[name]
    lookup = parse(source, variant)
    assert lookup.target(TABLES) == target
    assert " ".join(variant.write(lookup)) == source
    positions = variant.attention(lookup)
    assert " ".join(map(str, positions)) == attention
    words = source.split()
    assert [words[position] for position in positions] == [lookup.string, *lookup.tables, "."]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "source",
    ["", ".", "000", "000 .", "000 t1", "t1 .", "t1 t2 .", "000 001 .", "000 t1 . .", "! t1 ."]
    + ["000 ! .", "000 t1 ! .", "000 t1 ! t2 ! t3 .", "! 000 .", "2 t1 ."],
)
def test_other_words_are_refused(name: str, source: str) -> None:
    with pytest.raises(ValueError, match="is not a lookup of this variant"):
        parse(source, VARIANTS[name])


def generated(name: str, seed: int = 1) -> Lookups_and_tables:
    return _generated(name == "noisy", seed)


@cache
def _generated(noisy: bool, seed: int) -> Lookups_and_tables:
    draw = Draw(seed)
    lookups = make_lookups(draw)
    return (add_noise(draw, lookups) if noisy else lookups), make_tables(draw)


@pytest.fixture(scope="module", params=[*VARIANTS])
def found_by_rule(request: pytest.FixtureRequest) -> tuple[str, Lookups_and_tables]:
    return request.param, generated(request.param)


def check_rules(name: str, lookups: Lookups, tables: Tables) -> None:
    """What holds of the published files, and must hold of generated ones."""
    sizes = {part: len(some) for part, some in lookups.items()}
    assert sizes == command.PUBLISHED_SIZES
    assert tables.keys() == {*TRAINED, *UNTRAINED}
    assert all(sorted(table) == sorted(table.values()) == STRINGS for table in tables.values())
    assert len({tuple(table.values()) for table in tables.values()}) == 8
    # No pair twice, in one set or in two.
    plain = [(one.string, one.tables) for some in lookups.values() for one in some]
    assert len(set(plain)) == len(plain)

    trained = lookups["train"] + lookups["valid"]
    unary = [one for one in trained if len(one.tables) == 1]
    assert Counter(one.tables[0] for one in unary) == dict.fromkeys(tables, 8)
    composed = [one for one in trained if len(one.tables) > 1]
    assert {table for one in composed for table in one.tables} == {*TRAINED}
    assert Counter(len(one.tables) for one in composed) == {2: 288, 3: 1728, 4: 7476}
    assert all(len(one.tables) > 1 for one in lookups["valid"])
    shares = Counter(len(one.tables) for one in lookups["valid"])
    for length, number in ((2, 288), (3, 1728), (4, 7476)):
        assert abs(shares[length] - 0.05 * number) < 4

    def compositions(part: str) -> Counter[tuple[str, ...]]:
        return Counter(one.tables for one in lookups[part])

    held_out = compositions("heldout_compositions")
    inputs = compositions("heldout_inputs")
    assert len(held_out) == 50 and set(held_out.values()) == {8}
    assert len(inputs) == 1246 and set(inputs.values()) == {2}
    of_four = Counter(one.tables for one in composed if len(one.tables) == 4)
    assert of_four == dict.fromkeys(inputs, 6) and not held_out.keys() & inputs.keys()
    for part, count, untrained in (("heldout_tables", 4, 1), ("new_compositions", 4, 4)):
        assert all(len(one) == count for one in compositions(part))
        assert all(sum(t in UNTRAINED for t in one) == untrained for one in compositions(part))
    for more in LONGER:
        for kind, untrained in (("seen", 0), ("incremental", 1), ("new", 4 + more)):
            longer = compositions(f"longer_{kind}_{more}")
            assert set(longer.values()) == {8}  # with every string
            assert all(len(one) == 4 + more for one in longer)
            assert all(sum(table in UNTRAINED for table in one) == untrained for one in longer)
        if more > 1:
            shorter = compositions(f"longer_seen_{more - 1}")
            assert all(one[:-1] in shorter for one in compositions(f"longer_seen_{more}"))

    noise = Counter(len(one.noise) for some in lookups.values() for one in some)
    if name == "noisy":
        assert {*noise} == {*range(MOST_NOISE + 1)}
        assert max(noise.values()) < 1.1 * min(noise.values())
        words = {word for some in lookups.values() for one in some for word in one.noise}
        assert words == {*TRAINED}
    else:
        assert {*noise} == {0}


@pytest.mark.parametrize("name", ["long", "noisy"])
def test_generated_sets_obey_the_rules(name: str) -> None:
    """Those of `reverse` are those of `long`, written in another order."""
    lookups, tables = generated(name)
    check_rules(name, lookups, tables)


@pytest.mark.parametrize("name", VARIANTS)
def test_published_files_obey_the_rules(shared_data: Path, name: str) -> None:
    """Reading compares the target of every line, and of `long` its third column, with ours."""
    files = command.find_files(shared_data / "long_lookup_tables", name)
    lookups, tables = command.read_all(files, VARIANTS[name])
    check_rules(name, lookups, tables)


def test_the_published_attention_is_ours(shared_data: Path) -> None:
    """The third column of every line of `long`, parsed independently of the reader."""
    lines = 0
    for path in command.find_files(shared_data / "long_lookup_tables", "long").values():
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for line in stream:
                source, _, attention = line.rstrip("\n").split("\t")
                variant = VARIANTS["long"]
                ours = variant.attention(parse(source, variant))
                assert [int(word) for word in attention.split()] == ours
                lines += 1
    assert lines == sum(command.PUBLISHED_SIZES.values()) == 75_512


def test_seeds(found_by_rule: tuple[str, Lookups_and_tables]) -> None:
    """The same seed gives the same pairs in all variants, another one other tables and pairs."""
    name, (lookups, tables) = found_by_rule
    long, same = generated("long")
    assert same == tables
    for part, some in lookups.items():
        assert [one._replace(noise=()) for one in some] == long[part]
    other, others = generated(name, seed=2)
    assert others != tables and other["heldout_compositions"] != lookups["heldout_compositions"]


def test_parts(found_by_rule: tuple[str, Lookups_and_tables]) -> None:
    """`test` holds the paper's sets, every other set its own; columns say what a pair is."""
    name, (lookups, tables) = found_by_rule
    parts = command.make_parts(lookups, tables, VARIANTS[name])
    assert [*parts][:3] == ["train", "valid", "test"]
    assert parts.keys() - {"test"} == lookups.keys()
    sets = Counter(example.values[2] for example in parts["test"])
    assert sets == {"interpolation": 2892, **{f"long_{more}": 5000 for more in LONGER}}
    tables_by_set = {(example.values[2], example.values[1]) for example in parts["test"]}
    assert tables_by_set == {("interpolation", "4"), *((f"long_{m}", str(4 + m)) for m in LONGER)}
    assert Counter(parts["test"][-5000:]).keys() == {
        one._replace(values=(*one.values[:2], "long_5")) for one in parts["longer_seen_5"]
    }
    for example in parts["test"][::500]:
        words = example.source.split()
        positions = [int(word) for word in example.values[0].split()]
        assert len(positions) == len(example.target.split()) + 1
        assert words[positions[0]] == example.target.split()[0] and words[positions[-1]] == "."


def write_files(folder: Path, change: Callable[[str, list[str]], list[str]]) -> dict[str, Path]:
    """Files of a few lines each, after a change."""
    files = {}
    for part in command.PUBLISHED_SIZES:
        lines = ["000 t1 .\t000 001", "001 t1 .\t001 000"]
        if part != "train":
            lines = ["000 t1 t1 .\t000 001 000\t0 1 2 3"]
        files[part] = folder / command.file_name(part)
        files[part].write_text("".join(f"{line}\n" for line in change(part, lines)))
    return files


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "longer_seen_2.tsv, line 2: expected `source TAB target`"),
        ("000 t1 .", "line 2: expected `source TAB target`"),
        ("000 t1 .\t000 001\t0 1 2\t", "line 2: expected `source TAB target`"),
        ("t1 000 .\t000 001", "line 2: `t1 000 .` is not a lookup of this variant: check --split"),
        ("000 t1 .\t000 001\t0 1", "line 2: the gold attention is `0 1 2`, not `0 1`"),
        ("000 t1 .\t000 001\t2 1 0", "line 2: the gold attention is `0 1 2`, not `2 1 0`"),
        ("000 t1 .\t000 000", "line 2: the target is `000 001`, not `000 000`"),
        ("000 t1 .\t001", "line 2: the target is `000 001`, not `001`"),
        ("000 t9 .\t000 001", "line 2: 't9' is not among the values or tables that train.tsv"),
        ("010 t1 .\t010 001", "line 2: '010' is not among the values or tables that train.tsv"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    def change(part: str, lines: list[str]) -> list[str]:
        return [*lines, line] if part == "longer_seen_2" else lines

    with pytest.raises(InputError, match="^[^\n]*$") as caught:
        command.read_all(write_files(tmp_path, change), VARIANTS["long"])
    assert message in str(caught.value)


def test_a_training_file_without_tables_is_refused(tmp_path: Path) -> None:
    def change(part: str, lines: list[str]) -> list[str]:
        return ["000 t1 t2 .\t000 001 000"] if part == "train" else lines

    with pytest.raises(InputError, match="no line with one table"):
        command.read_all(write_files(tmp_path, change), VARIANTS["long"])


@pytest.mark.parametrize("line", ["001 t1 .\t", "001 t1 .\t \t0 1 2"])
def test_a_training_line_without_a_target_is_named(tmp_path: Path, line: str) -> None:
    def change(part: str, lines: list[str]) -> list[str]:
        return [*lines, line] if part == "train" else lines

    with pytest.raises(InputError, match="train.tsv, line 3: expected `source TAB target`"):
        command.read_all(write_files(tmp_path, change), VARIANTS["long"])


def test_files_are_found_in_their_variants_folder(tmp_path: Path) -> None:
    """Beside other variants, as published; or all by themselves."""
    for name in ("noisy_single", "one_shot", "LongLookupTables/sample1"):
        place = tmp_path / name
        place.mkdir(parents=True)
        write_files(place, lambda part, lines: lines)
    assert command.find_files(tmp_path, "noisy")["train"].parent.name == "noisy_single"
    assert command.find_files(tmp_path, "long")["valid"].parent.name == "sample1"
    alone = command.find_files(tmp_path / "one_shot", "long")["valid"]
    assert alone == tmp_path / "one_shot" / "validation.tsv"
    (tmp_path / "one_shot" / "validation.tsv").unlink()
    with pytest.raises(InputError, match="has neither validation.tsv nor validation.tsv.gz"):
        command.find_files(tmp_path / "one_shot", "long")


GOOD_LINES = st.sampled_from(["000 t1 .\t000 001", "110 t1  t4 .\t110 000 111\t0 1 2 3"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(GOOD_LINES, GOOD_LINES, st.text(max_size=30)), max_size=4))
def test_no_line_is_lost_and_nothing_else_is_raised(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        found = command.read_file(path, VARIANTS["long"])
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert len(found) == len(lines)
        assert all(isinstance(lookup, Lookup) for lookup, _ in found)
