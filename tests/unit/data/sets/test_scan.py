"""The SCAN generator against the published files and against the rules of each split."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sut_data.errors import InputError
from sut_data.kit.examples import Example, check_counts, take_validation
from sut_data.sets.scan import command as scan
from sut_data.sets.scan import splits as scan_splits
from sut_data.sets.scan.files import Published, overlap, read_pairs, select
from sut_data.sets.scan.grammar import all_pairs, interpret

GOOD_LINES = st.sampled_from(["IN: jump OUT: I_JUMP", "IN: run twice OUT: I_RUN I_RUN"])
# Made once for all tests that only look at them.
pairs_of, pairs_of_all = cache(lambda split: scan_splits.SPLITS[split]()), cache(all_pairs)
RULED = ("length", "addprim_jump", "addprim_turn_left", "template_around_right")


def validation(train: list[Example], size: int) -> tuple[list[Example], list[Example]]:
    """What is left to train on, and the validation set."""
    parts = take_validation({"train": train}, size)
    return parts["train"], parts["valid"]


def published(shared_data: Path, name: str) -> Counter[Example]:
    """The lines of a published file as a multiset, parsed independently of the generator."""
    with gzip.open(shared_data / "scan" / f"{name}.txt.gz", "rt", encoding="utf-8") as stream:
        lines = [line.removeprefix("IN: ").rstrip("\n").split(" OUT: ") for line in stream]
    return Counter(Example(command, actions) for command, actions in lines)


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("jump", "I_JUMP"),
        ("turn left", "I_TURN_LEFT"),
        ("run right", "I_TURN_RIGHT I_RUN"),
        ("turn opposite right", "I_TURN_RIGHT I_TURN_RIGHT"),
        ("look opposite left", "I_TURN_LEFT I_TURN_LEFT I_LOOK"),
        ("turn around left", "I_TURN_LEFT I_TURN_LEFT I_TURN_LEFT I_TURN_LEFT"),
        ("walk around right", "I_TURN_RIGHT I_WALK " * 4),
        ("jump left thrice", "I_TURN_LEFT I_JUMP " * 3),
        ("walk twice and run", "I_WALK I_WALK I_RUN"),
        ("walk after run left twice", "I_TURN_LEFT I_RUN I_TURN_LEFT I_RUN I_WALK"),
    ],
)
def test_interpretation(command: str, actions: str) -> None:
    assert interpret(command) == actions.split()


@pytest.mark.parametrize(
    "command", ["", "turn", "fly", "jump jump", "jump sideways left", "jump and", "twice", "left"]
)
def test_other_sentences_are_refused(command: str) -> None:
    with pytest.raises(ValueError, match="is not a SCAN command"):
        interpret(command)


def test_all_pairs_are_the_published_ones(shared_data: Path) -> None:
    pairs = pairs_of_all()
    assert len(pairs) == 20910
    assert Counter(pairs) == published(shared_data, "tasks")


@pytest.mark.parametrize("split", RULED)
def test_ruled_splits_are_the_published_ones(shared_data: Path, split: str) -> None:
    train, test = pairs_of(split)
    assert Counter(train) == published(shared_data, f"tasks_train_{split}")
    assert Counter(test) == published(shared_data, f"tasks_test_{split}")


@pytest.mark.parametrize("split", list(scan_splits.SPLITS))
def test_sizes_and_disjointness(split: str) -> None:
    pairs = pairs_of(split)
    found = {"train": len(pairs.train), "test": len(pairs.test)}
    assert found == scan_splits.PUBLISHED_SIZES[split]
    assert not set(pairs.train) & set(pairs.test)


def test_simple_is_the_same_draw_everywhere() -> None:
    first, second = scan_splits.simple_split(), scan_splits.simple_split()
    assert first == second
    assert len(set(first.train) | set(first.test)) == 20910
    # Three of the draw; another machine or Python version must find the same.
    commands = [pair.source for pair in first.test[:3]]
    assert commands == ["look", "jump opposite left", "walk around right"]


@pytest.mark.parametrize("split", ["simple", "addprim_jump"])
def test_validation_comes_out_of_training(split: str) -> None:
    pairs = pairs_of(split)
    train, valid = validation(pairs.train, 500)
    assert Counter(train) + Counter(valid) == Counter(pairs.train)
    assert len(valid) == 500
    assert not set(train) & set(valid)
    assert (train, valid) == validation(pairs.train, 500)


def test_validation_ignores_the_order_of_the_training_set() -> None:
    pairs = pairs_of("simple")
    _, valid = validation(pairs.train, 100)
    _, reversed_valid = validation(pairs.train[::-1], 100)
    assert set(valid) == set(reversed_valid)


@pytest.mark.parametrize("size", [-1, 0, 13203, 10**6])
def test_validation_size_is_checked(size: int) -> None:
    with pytest.raises(InputError, match="--valid-size must be between 1 and 13202"):
        validation(pairs_of("addprim_jump").train, size)


def test_other_sizes_than_the_published_are_refused() -> None:
    found, published = {"train": 16989, "iid": 5}, {"train": 16990}
    with pytest.raises(InputError, match="has 16,989 train, but was published with 16,990 train"):
        check_counts("SCAN length", found, published, limit=None)
    check_counts("SCAN length", found, published, limit=3)


@pytest.mark.parametrize("name", ["add_jump", "add_turn_left", "around_right"])
def test_names_of_papers(name: str) -> None:
    assert scan_splits.OTHER_NAMES[name] in scan_splits.SPLITS


@pytest.mark.parametrize(("longest", "short"), [(22, 16990), (26, 18286), (40, 20782)])
def test_cut_offs(longest: int, short: int) -> None:
    """The sizes are those of the published pairs; see also the published length split."""
    parts = scan_splits.cut_off(pairs_of_all(), longest)
    assert Counter(parts["train"] + parts["iid"] + parts["test"]) == Counter(pairs_of_all())
    assert len(parts["iid"]) == round(short / 10)
    assert len(parts["train"]) + len(parts["iid"]) == short
    assert max(len(p.target.split()) for p in parts["train"] + parts["iid"]) <= longest
    assert min(len(p.target.split()) for p in parts["test"]) > longest
    assert parts == scan_splits.cut_off(pairs_of_all(), longest)


@pytest.mark.parametrize("longest", [-1, 0, 48, 99])
def test_a_cut_off_must_leave_two_sides(longest: int) -> None:
    with pytest.raises(InputError, match=f"--cutoff must be between 1 and 47 .*{longest} instead"):
        scan_splits.cut_off(pairs_of_all(), longest)


def test_a_cut_off_of_the_published_file(shared_data: Path) -> None:
    _, _, read = scan.cut_off_source(shared_data / "scan", 30, None)
    name, files, generate = scan.cut_off_source(None, 30, None)
    assert (name, files) == ("cutoff_30", [])
    parts, generated = read(), generate()
    assert {name: set(part) for name, part in parts.items()} == {
        name: set(part) for name, part in generated.items()
    }


def test_the_published_simple_files_are_read(shared_data: Path) -> None:
    pairs = Published(shared_data / "scan", "simple").read()
    assert (len(pairs["train"]), len(pairs["test"])) == (16728, 4182)
    assert Counter(pairs["test"]) == published(shared_data, "tasks_test_simple")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("jump twice I_JUMP I_JUMP", "line 2: expected `IN: <command> OUT: <actions>`"),
        ("IN: fly OUT: I_FLY", "line 2: `fly` is not a SCAN command"),
        ("IN: jump twice OUT: I_JUMP", "line 2: the actions do not follow from `jump twice`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    for side in ("train", "test"):
        path = tmp_path / f"tasks_{side}_simple.txt"
        path.write_text(f"IN: jump OUT: I_JUMP\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Published(tmp_path, "simple").read()


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither tasks_train_length.txt nor tasks_train_length"):
        Published(tmp_path, "length")
    with pytest.raises(InputError, match="is not a folder"):
        Published(tmp_path / "absent", "length")
    with pytest.raises(InputError, match="neither mcd3.json .with tasks.txt. nor tasks_train_mcd3"):
        Published(tmp_path, "mcd3")
    with pytest.raises(InputError, match="is not a folder"):
        Published(tmp_path / "absent", "mcd3")
    (tmp_path / "mcd3.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="neither tasks.txt nor tasks.txt.gz"):
        Published(tmp_path, "mcd3")


def test_files_may_lie_one_folder_down(tmp_path: Path) -> None:
    folder = tmp_path / "simple_split"
    folder.mkdir()
    for side in ("train", "test"):
        path = folder / f"tasks_{side}_simple.txt"
        path.write_text("IN: jump OUT: I_JUMP\n", encoding="utf-8")
    assert Published(tmp_path, "simple").read()["train"] == [Example("jump", "I_JUMP")]


def test_the_sample_of_a_ruled_split(samples: Path) -> None:
    parts = Published(samples / "scan", "addprim_jump").read()
    train, test = pairs_of("addprim_jump")
    assert set(parts["train"]) <= set(train) and set(parts["test"]) <= set(test)
    assert [len(part) for part in parts.values()] == [28, 12]


def test_mcd_as_indices(samples: Path) -> None:
    """Each part has the lines that its indices name, in their order."""
    published = Published(samples / "scan", "mcd1")
    lines = read_pairs(samples / "scan" / "tasks.txt")
    assert [path.name for path in published.files] == ["tasks.txt", "mcd1.json"]
    assert published.read() == {
        "train": lines[59:19:-1],
        "valid": [lines[3], lines[1], lines[2]],
        "test": lines[8:20],
    }
    without = {part: range(3) for part in ("train", "test")}
    assert select(lines, {part: [*numbers] for part, numbers in without.items()}).keys() == {
        *without
    }


def test_mcd_written_out(samples: Path, tmp_path: Path) -> None:
    parts = Published(samples / "scan", "mcd2").read()
    assert {part: len(pairs) for part, pairs in parts.items()} == {
        "train": 40,
        "test": 12,
        "valid": 3,
    }
    for part in ("train", "test"):
        name = f"tasks_{part}_mcd2.txt"
        (tmp_path / name).write_text((samples / "scan" / name).read_text())
    assert Published(tmp_path, "mcd2").read().keys() == {"train", "test"}
    (tmp_path / "tasks_dev_mcd2.txt").write_text("IN: jump OUT: I_JUMP\n")
    assert Published(tmp_path, "mcd2").read()["valid"] == [Example("jump", "I_JUMP")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"trainIdxs": [0]}', "mcd1.json does not hold the lists trainIdxs, devIdxs, testIdxs"),
        ('{"trainIdxs": [0.5], "testIdxs": []}', "does not hold the lists"),
        ("[0, 1]", "does not hold the lists"),
        ("no JSON", "does not hold the lists"),
        ('{"trainIdxs": [0], "testIdxs": [60]}', "test part wants line 60 of tasks.txt.* 60 lines"),
        ('{"trainIdxs": [-1], "testIdxs": [0]}', "train part wants line -1 of tasks.txt"),
    ],
)
def test_wrong_indices_are_refused(
    samples: Path, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "tasks.txt").write_text((samples / "scan" / "tasks.txt").read_text())
    (tmp_path / "mcd1.json").write_text(content)
    with pytest.raises(InputError, match=message):
        Published(tmp_path, "mcd1").read()


def test_files_of_any_language(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("IN: fly  high OUT: FLY\n\n")
    with pytest.raises(
        InputError, match="own.txt, line 2: expected `IN: <command> OUT: <actions>`"
    ):
        read_pairs(path, any_language=True)
    path.write_text("IN: fly  high OUT: FLY\nIN: a OUT: OUT: b\n")
    pairs = read_pairs(path, any_language=True)
    assert pairs[0] == Example("fly high", "FLY")
    with pytest.raises(InputError, match="line 1: `fly high` is not a SCAN command"):
        read_pairs(path)
    path.write_text("")
    with pytest.raises(InputError, match="own.txt is empty: give at least one line"):
        read_pairs(path, any_language=True)


def test_overlap_is_reported() -> None:
    one, two, three = Example("a", "A"), Example("b", "B"), Example("b", "C")
    assert overlap({"train": [one], "test": [two]}) == ""
    assert overlap({"train": [one, two], "test": [one, one, three]}) == (
        "Train and test overlap: 2 of the 3 test pairs are in the training set, and 1 more have a "
        "command of it with other actions."
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.one_of(GOOD_LINES, GOOD_LINES, st.text(max_size=30)), max_size=4))
def test_no_line_is_lost_and_nothing_else_is_raised(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "tasks.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        pairs = read_pairs(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert [f"IN: {pair.source} OUT: {pair.target}" for pair in pairs] == lines
