"""The SCAN commands, their actions, and the published splits, from the grammar alone.

SCAN (Lake and Baroni, 2018, "Generalization without Systematicity", appendix) is a finite
language, so nothing needs to be downloaded: 34 verb phrases, each alone, `twice` or `thrice`,
alone or in pairs joined by `and` or `after`, make 20,910 commands.

Each split but one is a rule, and reproduces the published files up to the order of their lines:

    simple                 a random fifth (4,182) is the test set; ours is drawn by `keyed_order`
    length                 train on at most 22 actions, test on the longer ones
    addprim_jump           `jump` is trained alone only, and tested inside every other command
    addprim_turn_left      the same with `turn left`
    template_around_right  `<verb> around right` is tested and never trained
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Callable, Iterable, NamedTuple

from text_files import InputError, Parser, read_lines, run

VERBS = ("walk", "look", "run", "jump")
DIRECTIONS = ("left", "right")
REPETITIONS = {"twice": 2, "thrice": 3}
MAX_TRAIN_ACTIONS = 22  # of the length split
SPLIT_SEED = 1

# (training pairs, test pairs) of the published files.
PUBLISHED_SIZES = {
    "simple": (16728, 4182),
    "length": (16990, 3920),
    "addprim_jump": (14670, 7706),
    "addprim_turn_left": (21890, 1208),
    "template_around_right": (15225, 4476),
}


class Pair(NamedTuple):
    """One example: a command and the actions it stands for, words separated by one space."""

    command: str
    actions: str


class Split(NamedTuple):
    """The two sides of a split; `train` may hold the same pair many times."""

    train: list[Pair]
    test: list[Pair]


def verb_phrases() -> list[str]:
    """Return the 34 phrases without repetition, such as `jump` or `turn opposite left`."""
    phrases = list(VERBS)
    for manner in ("", "opposite ", "around "):
        for verb in (*VERBS, "turn"):
            phrases += [f"{verb} {manner}{direction}" for direction in DIRECTIONS]
    return phrases


def all_commands() -> list[str]:
    """Return the 20,910 commands of the language, each once."""
    phrases = verb_phrases()
    sentences = phrases + [f"{phrase} {word}" for phrase in phrases for word in REPETITIONS]
    joined = [
        f"{first} {conjunction} {second}"
        for conjunction in ("and", "after")
        for first in sentences
        for second in sentences
    ]
    return sentences + joined


def interpret(command: str) -> list[str]:
    """Return the actions that a command stands for.

    Raises:
        ValueError: if the command is not in the language.
    """
    words = command.split()
    if "and" in words:
        split = words.index("and")
        return _sentence(words[:split], command) + _sentence(words[split + 1 :], command)
    if "after" in words:
        split = words.index("after")
        return _sentence(words[split + 1 :], command) + _sentence(words[:split], command)
    return _sentence(words, command)


def _sentence(words: list[str], command: str) -> list[str]:
    """Actions of a verb phrase and its repetition: `jump left twice`."""
    if words and words[-1] in REPETITIONS:
        return _verb_phrase(words[:-1], command) * REPETITIONS[words[-1]]
    return _verb_phrase(words, command)


def _verb_phrase(words: list[str], command: str) -> list[str]:
    """Actions of a verb with an optional manner and direction: `jump around left`."""
    if len(words) == 1 and words[0] in VERBS:
        return [f"I_{words[0].upper()}"]
    known = len(words) in (2, 3) and words[0] in (*VERBS, "turn") and words[-1] in DIRECTIONS
    if known:
        turn = f"I_TURN_{words[-1].upper()}"
        act = [] if words[0] == "turn" else [f"I_{words[0].upper()}"]  # `turn` is the turn itself
        if len(words) == 2:
            return [turn, *act]
        if words[1] == "opposite":
            return [turn, turn, *act]
        if words[1] == "around":
            return [turn, *act] * 4
    raise ValueError(f"`{command}` is not a SCAN command")


def all_pairs() -> list[Pair]:
    """Return every command of the language with its actions."""
    return [Pair(command, " ".join(interpret(command))) for command in all_commands()]


def keyed_order(pairs: Iterable[Pair], purpose: str) -> list[Pair]:
    """Return the pairs in a random order that is the same on every machine and Python version.

    The order is that of a hash of seed, purpose and command, so it does not depend on the order in
    which the pairs come, and two purposes give independent orders.
    """

    def key(pair: Pair) -> bytes:
        return hashlib.sha256(f"{SPLIT_SEED} {purpose} {pair.command}".encode()).digest()

    return sorted(pairs, key=key)


def contains(command: str, phrase: str) -> bool:
    """Tell whether the words of `phrase` occur next to each other in the command."""
    return f" {phrase} " in f" {command} "


def simple_split() -> Split:
    """Hold out a random fifth of all commands."""
    pairs = all_pairs()
    test = set(keyed_order(pairs, "simple test")[: PUBLISHED_SIZES["simple"][1]])
    return Split([p for p in pairs if p not in test], [p for p in pairs if p in test])


def length_split() -> Split:
    """Train on the short outputs, test on the long ones."""
    train: list[Pair] = []
    test: list[Pair] = []
    for pair in all_pairs():
        short = len(pair.actions.split()) <= MAX_TRAIN_ACTIONS
        (train if short else test).append(pair)
    return Split(train, test)


def add_primitive_split(primitive: str) -> Split:
    """Train on `primitive` alone and on all that lacks it; test on what combines it.

    The published training files repeat the primitive until it is a tenth of the lines: one copy
    for every nine other commands.
    """
    train: list[Pair] = []
    test: list[Pair] = []
    for pair in all_pairs():
        if pair.command != primitive:
            (test if contains(pair.command, primitive) else train).append(pair)
    copies = len(train) // 9
    return Split([Pair(primitive, " ".join(interpret(primitive)))] * copies + train, test)


def around_right_split() -> Split:
    """Test on `<verb> around right`; `turn around right` is on neither side, as published."""
    train: list[Pair] = []
    test: list[Pair] = []
    for pair in all_pairs():
        if not contains(pair.command, "turn around right"):
            (test if contains(pair.command, "around right") else train).append(pair)
    return Split(train, test)


SPLITS: dict[str, Callable[[], Split]] = {
    "simple": simple_split,
    "length": length_split,
    "addprim_jump": lambda: add_primitive_split("jump"),
    "addprim_turn_left": lambda: add_primitive_split("turn left"),
    "template_around_right": around_right_split,
}


def read_published(folder: Path, split: str) -> Split:
    """Read a split from the published files, anywhere a checkout of the SCAN repository has them.

    Raises:
        InputError: if a file is absent or a line is not a SCAN pair.
    """
    files = [_find_file(folder, f"tasks_{side}_{split}.txt") for side in Split._fields]
    return Split(*(_read_pairs(path) for path in files))


def _find_file(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise InputError(
            f"--raw {folder} is not a folder: give the one that holds the SCAN files, or leave "
            "--raw out to generate them."
        )
    for place in (folder, *sorted(child for child in folder.iterdir() if child.is_dir())):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise InputError(
        f"--raw {folder} has neither {name} nor {name}.gz: give the folder that holds the SCAN "
        "files, or leave --raw out to generate them."
    )


def _read_pairs(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        match = re.fullmatch(r"IN: (.+) OUT: (.+)", line.strip())
        if match is None:
            raise InputError(
                f"{path}, line {number}: expected `IN: <command> OUT: <actions>`, "
                f"but found `{line[:60]}`."
            )
        pair = Pair(*match.groups())
        try:
            expected = " ".join(interpret(pair.command))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}.") from error
        if pair.actions != expected:
            raise InputError(
                f"{path}, line {number}: the actions do not follow from `{pair.command}`; "
                "the file is not the published one."
            )
        pairs.append(pair)
    return pairs


def check_sizes(split: str, pairs: Split) -> None:
    """Compare the sizes of a split with the published ones.

    Raises:
        InputError: if they differ.
    """
    found = (len(pairs.train), len(pairs.test))
    if found != PUBLISHED_SIZES[split]:
        raise InputError(
            f"split {split} has {found[0]} training and {found[1]} test pairs, but SCAN was "
            "published with {} and {}: the files are incomplete or altered.".format(
                *PUBLISHED_SIZES[split]
            )
        )


def take_validation(train: list[Pair], size: int) -> tuple[list[Pair], list[Pair]]:
    """Take `size` random pairs out of a training set, so that no test pair is used to validate.

    A pair that the training set repeats is never taken: there would be nothing left to learn it
    from.

    Returns:
        the remaining training pairs and the validation pairs.

    Raises:
        InputError: if `size` is below 1 or leaves nothing to train on.
    """
    repeated = {pair for pair, after in zip(sorted(train), sorted(train)[1:]) if pair == after}
    candidates = [pair for pair in train if pair not in repeated]
    if not 1 <= size < len(candidates):
        raise InputError(
            f"--valid-size must be between 1 and {len(candidates) - 1} for this split, "
            f"but is {size}."
        )
    valid = set(keyed_order(candidates, "validation")[:size])
    return [p for p in train if p not in valid], [p for p in train if p in valid]


def write_side(folder: Path, name: str, pairs: list[Pair]) -> None:
    """Write `<name>.src` with the commands and `<name>.tgt` with the actions."""
    for suffix, column in (("src", 0), ("tgt", 1)):
        text = "".join(f"{pair[column]}\n" for pair in pairs)
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")


def main() -> None:
    """Write one split as six text files and print its sizes."""
    parser = Parser(
        "scan.py",
        "Write a split of SCAN as train, valid and test files, one sentence a line.",
        "`simple` is our own random draw (the published one has no rule); its test set is a full "
        "4,182 commands.\nAll other splits hold exactly the published pairs.",
    )
    parser.add_argument("--split", choices=list(SPLITS), default="simple", help="default: simple")
    parser.add_argument(
        "--raw", type=Path, metavar="DIR", help="read the published files here, generate nothing"
    )
    parser.add_argument(
        "--valid-size",
        type=int,
        default=500,
        metavar="N",
        help="pairs taken out of the training set for validation (default: 500)",
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="for a quick look, N random pairs of each file"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    args = parser.parse_args()
    if args.limit is not None and args.limit < 1:
        raise InputError(f"--limit must be at least 1, but is {args.limit} instead.")

    split = SPLITS[args.split]() if args.raw is None else read_published(args.raw, args.split)
    check_sizes(args.split, split)
    train, valid = take_validation(split.train, args.valid_size)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("train", train), ("valid", valid), ("test", split.test)):
        if args.limit is not None:
            pairs = keyed_order(pairs, "limit")[: args.limit]
        write_side(args.out, name, pairs)
    print(
        f"SCAN {args.split} ({'generated' if args.raw is None else 'published files'}): "
        f"{len(train)} train + {len(valid)} valid = {len(split.train)}, {len(split.test)} test; "
        "the published sizes agree."
    )
    if args.limit is not None:
        print(f"--limit: at most {args.limit} pairs of each were written.")


if __name__ == "__main__":
    run(main, "scan.py")
