"""The COGS reader."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.kit.examples import Example
from sut_data.sets import cogs


def test_published_files(shared_data: Path) -> None:
    """Sizes, and what each of the 21 types counts."""
    parts = {
        part: cogs.read_file(shared_data / "cogs" / f"{name}.gz")
        for part, name in cogs.FILES.items()
    }
    assert {part: len(lines) for part, lines in parts.items()} == cogs.PUBLISHED_SIZES
    types = Counter(line.values[0] for line in parts["gen"])
    assert len(types) == 21 and set(types.values()) == {1000}
    assert types["cp_recursion"] == types["obj_pp_to_subj_pp"] == 1000
    cogs.check_types(parts["gen"], None)
    repeated = Counter(line.source for line in cogs.repeat_exposures(parts["train"], 30))
    assert {repeated[x] for x in ("shark", "Paula", "A hedgehog ate the cake on the bed .")} == {30}
    assert repeated["Emma rolled a teacher ."] == 1 and repeated.total() == 24_155 + 29 * 155
    assert parts["train"][2] == Example(
        "Emma rolled a teacher .",
        "roll . agent ( x _ 1 , Emma ) AND roll . theme ( x _ 1 , x _ 3 ) AND teacher ( x _ 3 )",
        ("in_distribution",),
    )


def test_the_sample(samples: Path) -> None:
    parts = {part: cogs.read_file(samples / "cogs" / name) for part, name in cogs.FILES.items()}
    assert [len(lines) for lines in parts.values()] == [30, 6, 6, 12]
    assert Counter(line.values[0] for line in parts["gen"]).most_common()[0][1] == 4
    assert parts["gen"][0] == Example(
        "The dog helped a cat .",
        "* dog ( x _ 1 ) ; help . agent ( x _ 2 , x _ 1 ) AND help . theme ( x _ 2 , x _ 4 ) AND "
        "cat ( x _ 4 )",
        ("subj_to_obj",),
    )
    with pytest.raises(InputError, match="has 3 types, 4 in the smallest, 4 in the largest"):
        cogs.check_types(parts["gen"], None)


def test_a_lost_type_is_noticed() -> None:
    lines = [Example("A", "B", (f"type {n // 1000}",)) for n in range(21_000)]
    cogs.check_types(lines, None)
    lines[0] = Example("A", "B", ("type 20",))
    with pytest.raises(InputError, match="has 21 types, 999 in the smallest, 1,001 in the largest"):
        cogs.check_types(lines, None)
    cogs.check_types(lines, 5)
    with pytest.raises(InputError, match="has 0 types"):
        cogs.check_types([], None)


def test_repeated_exposures(capsys: pytest.CaptureFixture[str]) -> None:
    train = [
        Example("A cat ran .", "cat", ("in_distribution",)),
        Example("shark", "shark", ("primitive",)),
        Example("A cow ran .", "cow", ("exposure_example_subj_common",)),
    ]
    assert cogs.repeat_exposures(train, 1) == train
    assert capsys.readouterr().out == ""
    assert cogs.repeat_exposures(train, 3) == [*train, *train[1:], *train[1:]]
    assert capsys.readouterr().out == "--exposures: 2 examples 3 times, 7 in train.\n"


@pytest.mark.parametrize("line", ["", "A\tB", "A\tB\tc\td", "A\t \tc", "\tB\tc"])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "gen.tsv"
    path.write_text(f"A cat .\tcat ( x )\tgood\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match="gen.tsv, line 2: expected `sentence TAB logical form"):
        cogs.read_file(path)


GOOD_LINES = st.sampled_from(["A cat .\tcat ( x )\tone", "A  dog\tdog\ttwo"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.one_of(GOOD_LINES, GOOD_LINES, st.text(max_size=30)), max_size=4))
def test_no_line_is_lost_and_nothing_else_is_raised(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "gen.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        examples = cogs.read_file(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [example.values[0] for example in examples] == [x.split("\t")[2] for x in lines]
