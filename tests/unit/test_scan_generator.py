"""The SCAN generator against the published files and against the rules of each split."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
import scan
from text_files import InputError

RULED = ("length", "addprim_jump", "addprim_turn_left", "template_around_right")


def published(shared_data: Path, name: str) -> Counter[scan.Pair]:
    """The lines of a published file as a multiset, parsed independently of the generator."""
    with gzip.open(shared_data / "scan" / f"{name}.txt.gz", "rt", encoding="utf-8") as stream:
        lines = [line.removeprefix("IN: ").rstrip("\n").split(" OUT: ") for line in stream]
    return Counter(scan.Pair(command, actions) for command, actions in lines)


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
    assert scan.interpret(command) == actions.split()


@pytest.mark.parametrize(
    "command", ["", "turn", "fly", "jump jump", "jump sideways left", "jump and", "twice", "left"]
)
def test_other_sentences_are_refused(command: str) -> None:
    with pytest.raises(ValueError, match="is not a SCAN command"):
        scan.interpret(command)


def test_all_pairs_are_the_published_ones(shared_data: Path) -> None:
    pairs = scan.all_pairs()
    assert len(pairs) == 20910
    assert Counter(pairs) == published(shared_data, "tasks")


@pytest.mark.parametrize("split", RULED)
def test_ruled_splits_are_the_published_ones(shared_data: Path, split: str) -> None:
    train, test = scan.SPLITS[split]()
    assert Counter(train) == published(shared_data, f"tasks_train_{split}")
    assert Counter(test) == published(shared_data, f"tasks_test_{split}")


@pytest.mark.parametrize("split", list(scan.SPLITS))
def test_sizes_and_disjointness(split: str) -> None:
    pairs = scan.SPLITS[split]()
    scan.check_sizes(split, pairs)
    assert (len(pairs.train), len(pairs.test)) == scan.PUBLISHED_SIZES[split]
    assert not set(pairs.train) & set(pairs.test)


def test_simple_is_the_same_draw_everywhere() -> None:
    first, second = scan.simple_split(), scan.simple_split()
    assert first == second
    assert len(set(first.train) | set(first.test)) == 20910
    # Three of the draw; another machine or Python version must find the same.
    commands = [pair.command for pair in first.test[:3]]
    assert commands == ["look", "jump opposite left", "walk around right"]


@pytest.mark.parametrize("split", ["simple", "addprim_jump"])
def test_validation_comes_out_of_training(split: str) -> None:
    pairs = scan.SPLITS[split]()
    train, valid = scan.take_validation(pairs.train, 500)
    assert Counter(train) + Counter(valid) == Counter(pairs.train)
    assert len(valid) == 500
    assert not set(train) & set(valid)
    assert (train, valid) == scan.take_validation(pairs.train, 500)


def test_validation_ignores_the_order_of_the_training_set() -> None:
    pairs = scan.simple_split()
    _, valid = scan.take_validation(pairs.train, 100)
    _, reversed_valid = scan.take_validation(pairs.train[::-1], 100)
    assert set(valid) == set(reversed_valid)


@pytest.mark.parametrize("size", [-1, 0, 13203, 10**6])
def test_validation_size_is_checked(size: int) -> None:
    with pytest.raises(InputError, match="--valid-size must be between 1 and 13202"):
        scan.take_validation(scan.SPLITS["addprim_jump"]().train, size)


def test_other_sizes_than_the_published_are_refused() -> None:
    train, test = scan.length_split()
    with pytest.raises(InputError, match="has 16989 training and 3920 test pairs"):
        scan.check_sizes("length", scan.Split(train[1:], test))


def test_the_published_simple_files_are_read(shared_data: Path) -> None:
    pairs = scan.read_published(shared_data / "scan", "simple")
    scan.check_sizes("simple", pairs)
    assert Counter(pairs.test) == published(shared_data, "tasks_test_simple")


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
        scan.read_published(tmp_path, "simple")


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither tasks_train_length.txt nor tasks_train_length"):
        scan.read_published(tmp_path, "length")
    with pytest.raises(InputError, match="is not a folder"):
        scan.read_published(tmp_path / "absent", "length")


def test_files_may_lie_one_folder_down(tmp_path: Path) -> None:
    folder = tmp_path / "simple_split"
    folder.mkdir()
    for side in ("train", "test"):
        path = folder / f"tasks_{side}_simple.txt"
        path.write_text("IN: jump OUT: I_JUMP\n", encoding="utf-8")
    assert scan.read_published(tmp_path, "simple").train == [scan.Pair("jump", "I_JUMP")]
