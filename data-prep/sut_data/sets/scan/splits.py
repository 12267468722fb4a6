"""The splits of SCAN, from its grammar alone.

Each published split but one is a rule, which reproduces the files up to the order of their lines:

    simple                 a random fifth (4,182) is the test set; ours is drawn by `keyed_order`
    length                 train on at most 22 actions, test on the longer ones
    addprim_jump           `jump` is trained only alone, and tested in all commands that combine it
    addprim_turn_left      the same with `turn left`
    template_around_right  `<verb> around right` is tested and never trained

A cut-off divides all commands at another number of actions, and also has a test set of short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sut_data.errors import InputError
from sut_data.kit.examples import Example, Parts, keyed_order
from sut_data.sets.scan.grammar import all_pairs, make_pair

MAX_TRAIN_ACTIONS = 22  # of the length split
IID_SHARE = 0.1  # of the short commands, in a split by cut-off

# Training and test pairs of the published files.
PUBLISHED_SIZES = {
    "simple": {"train": 16_728, "test": 4_182},
    "length": {"train": 16_990, "test": 3_920},
    "addprim_jump": {"train": 14_670, "test": 7_706},
    "addprim_turn_left": {"train": 21_890, "test": 1_208},
    "template_around_right": {"train": 15_225, "test": 4_476},
}
# Lines of SCAN's tasks.txt, chosen for a high compound divergence of training and test set at low
# atom divergence; they follow no rule, so they are never generated.
MCD_SIZES = dict.fromkeys(("mcd1", "mcd2", "mcd3"), {"train": 8_365, "valid": 1_045, "test": 1_045})
# What papers call them.
OTHER_NAMES = {
    "random": "simple",
    "add_jump": "addprim_jump",
    "jump": "addprim_jump",
    "add_turn_left": "addprim_turn_left",
    "turn_left": "addprim_turn_left",
    "around_right": "template_around_right",
}


class Split(NamedTuple):
    """The two sides of a split; `train` may hold the same pair many times."""

    train: list[Example]
    test: list[Example]


def contains(command: str, phrase: str) -> bool:
    """Tell whether the words of `phrase` occur next to each other in the command."""
    return f" {phrase} " in f" {command} "


def simple_split() -> Split:
    """Hold out a random fifth of all commands."""
    pairs = all_pairs()
    test = set(keyed_order(pairs, "simple test")[: PUBLISHED_SIZES["simple"]["test"]])
    return Split([p for p in pairs if p not in test], [p for p in pairs if p in test])


def split_by_length(pairs: list[Example], longest: int) -> Split:
    """Train on outputs of at most `longest` actions, test on the longer ones."""
    train: list[Example] = []
    test: list[Example] = []
    for pair in pairs:
        (train if len(pair.target.split()) <= longest else test).append(pair)
    return Split(train, test)


def add_primitive_split(primitive: str) -> Split:
    """Train on `primitive` alone and on commands without it; test on those that combine it.

    The published training files repeat the primitive until it is a tenth of the lines: one copy
    for every nine other commands.
    """
    train: list[Example] = []
    test: list[Example] = []
    for pair in all_pairs():
        if pair.source != primitive:
            (test if contains(pair.source, primitive) else train).append(pair)
    copies = len(train) // 9
    return Split([make_pair(primitive)] * copies + train, test)


def around_right_split() -> Split:
    """Test on `<verb> around right`; `turn around right` is on neither side, as published."""
    train: list[Example] = []
    test: list[Example] = []
    for pair in all_pairs():
        if not contains(pair.source, "turn around right"):
            (test if contains(pair.source, "around right") else train).append(pair)
    return Split(train, test)


SPLITS: dict[str, Callable[[], Split]] = {
    "simple": simple_split,
    "length": lambda: split_by_length(all_pairs(), MAX_TRAIN_ACTIONS),
    "addprim_jump": lambda: add_primitive_split("jump"),
    "addprim_turn_left": lambda: add_primitive_split("turn left"),
    "template_around_right": around_right_split,
}


def cut_off(pairs: list[Example], longest: int) -> Parts:
    """Divide all pairs at an output length, for the study of extrapolation to longer outputs.

    Args:
        pairs: the whole language, at least one pair.
        longest: greatest number of actions that is trained on.

    Returns:
        `train` and `iid`, a tenth of the short pairs at random, and `test`, the longer ones.

    Raises:
        InputError: if one of the sides would have no pair.
    """
    greatest = max(len(pair.target.split()) for pair in pairs)
    if not 1 <= longest < greatest:
        raise InputError(
            f"--cutoff must be between 1 and {greatest - 1} actions, but is {longest} instead."
        )
    short, test = split_by_length(pairs, longest)
    size = round(IID_SHARE * len(short))
    iid = set(keyed_order(short, f"cut-off {longest} iid")[:size])
    return {
        "train": [pair for pair in short if pair not in iid],
        "test": test,
        "iid": [pair for pair in short if pair in iid],
    }
