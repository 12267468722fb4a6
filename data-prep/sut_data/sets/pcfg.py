"""PCFG SET (Hupkes et al., 2020): nested string functions and the strings they return.

A source is in prefix notation, `append reverse A1 B2 , C3` with the target `B2 A1 C3`; a function
with two arguments has a comma between them. Every line that is read is evaluated and compared with
its target. A function's synonym in the substitutivity test, `append_twin`, does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sut_data.errors import InputError
from sut_data.folders.raw_files import obtain
from sut_data.kit.examples import (
    Example,
    Parts,
    check_counts,
    make_parser,
    prepare,
    sizes,
    take_validation,
)
from sut_data.kit.preparation import refuse_options
from sut_data.text.pairs import read_pairs
from sut_data.waiting import waiting

ADDRESS = (
    "https://raw.githubusercontent.com/i-machine-think/am-i-compositional/master/data/pcfgset/"
)
SMALL = "10k_random_split"
SMALL_ADDRESS = (
    "https://raw.githubusercontent.com/MathijsMul/pcfg-set/master/data/pcfg_set/10K/random_split"
)

String = list[str]
UNARY: dict[str, Callable[[String], String]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "shift": lambda x: x[1:] + x[:1],
    "swap_first_last": lambda x: x[-1:] + x[1:-1] + x[:1] if len(x) > 1 else x,
    "repeat": lambda x: x + x,
    "echo": lambda x: x + x[-1:],
}
BINARY: dict[str, Callable[[String, String], String]] = {
    "append": lambda x, y: x + y,
    "prepend": lambda x, y: y + x,
    "remove_first": lambda x, y: y,
    "remove_second": lambda x, y: x,
}
COMMA = ","

DEV = "pcfgset/dev"
INCREASING = "localism/increasing_string_length/increasing_length"
# The files of each part, without .src and .tgt; without one for valid, it is taken out of
# train, because the published dev set has what these splits hold out.
SPLITS = {
    "pcfgset": {"train": "pcfgset/train", "valid": DEV, "test": "pcfgset/test"},
    "systematicity": {"train": "systematicity/train", "test": "systematicity/test"},
    "productivity": {"train": "productivity/train", "test": "productivity/test"},
    "localism": {"train": "pcfgset/train", "valid": DEV, "test": INCREASING},
    **{
        split: {
            "train": f"substitutivity/{folder}/train",
            "valid": DEV,
            "test": f"substitutivity/{folder}/test",
            "twin": f"substitutivity/{folder}/test_twin",
        }
        for split, folder in (
            ("substitutivity", "equally_distributed"),
            ("substitutivity_primitive", "primitive"),
        )
    },
    "10k": {"train": f"{SMALL}/train", "valid": f"{SMALL}/dev", "test": f"{SMALL}/test"},
}
PUBLISHED_SIZES = {
    "pcfgset": {"train": 82_622, "valid": 4_860, "test": 9_721},
    "systematicity": {"test": 10_175},
    "productivity": {"train": 81_010, "test": 11_333},
    "localism": {"train": 82_622, "valid": 4_860, "test": 10_070},
    "substitutivity": {"valid": 4_860, "test": 10_000, "twin": 10_000},
    "substitutivity_primitive": {"valid": 4_860, "test": 10_000, "twin": 10_000},
    "10k": {"train": 7_779, "valid": 457, "test": 916},
}

# The evaluation files that the pooled splits divide anew, and their published sizes.
POOLED_SPLITS = ("pooled_systematicity", "pooled_productivity")
POOLED_FILES = {
    DEV: 4_860,
    "pcfgset/test": 9_721,
    "systematicity/test": 10_175,
    "productivity/test": 11_333,
}
MAX_TRAIN_FUNCTIONS = 8  # of the productivity split
HELD_OUT_PAIRS = (  # of the systematicity split
    ("swap_first_last", "repeat"),
    ("append", "remove_second"),
    ("repeat", "remove_second"),
    ("append", "swap_first_last"),
)


def original(function: str) -> str:
    """Return a function's name without the suffix of its synonym."""
    return function.removesuffix("_twin")


def is_function(word: str) -> bool:
    """Tell whether a word of a source is a function, or a function's synonym."""
    return original(word) in UNARY or original(word) in BINARY


def evaluate(source: str) -> str:
    """Return the string that a source stands for.

    Raises:
        ValueError: if it is not a source of the language.
    """
    words = source.split()
    strings: list[String] = []  # the arguments found so far, from right to left, last one first
    after = ""  # the word to the right
    for word in reversed(words):
        name = original(word)
        if word == COMMA:
            well_formed = bool(after) and after != COMMA
        elif name in UNARY:
            well_formed = bool(after) and after != COMMA
            if well_formed:
                strings.append(UNARY[name](strings.pop()))
        elif name in BINARY:
            well_formed = bool(after) and after != COMMA and len(strings) > 1
            if well_formed:
                first, second = strings.pop(), strings.pop()
                strings.append(BINARY[name](first, second))
        else:
            well_formed = not is_function(after)
            if after in ("", COMMA):
                strings.append([word])
            elif well_formed:
                strings[-1] = [word, *strings[-1]]
        if not well_formed:
            break
        after = word
    else:
        if len(strings) == 1 and after != COMMA:
            return " ".join(strings[0])
    raise ValueError(f"`{source[:60]}` is not a source of PCFG SET")


def read_file(src: Path, tgt: Path) -> list[Example]:
    """Read every line of a pair of aligned files, with the number of functions.

    Raises:
        InputError: if their numbers of lines differ, or a line is wrong; it names the first.
    """
    examples = []
    for number, pair in enumerate(read_pairs(src, tgt), start=1):
        source, target = (" ".join(side.split()) for side in pair)
        try:
            expected = evaluate(source)
        except ValueError as error:
            raise InputError(f"{src}, line {number}: {error}.") from error
        if target != expected:
            raise InputError(
                f"{tgt}, line {number}: `{target[:60]}` is not what its source stands for; "
                "the files are not the published ones."
            )
        examples.append(Example(source, target, (str(count_functions(source)),)))
    return examples


def count_functions(source: str) -> int:
    """Return the number of functions in a source."""
    return sum(map(is_function, source.split()))


def has_held_out_pair(source: str) -> bool:
    """Tell whether one of the pairs of the systematicity split occurs side by side."""
    words = source.split()
    return any(pair in HELD_OUT_PAIRS for pair in zip(words, words[1:]))


def divide_pool(pool: list[Example], split: str) -> Parts:
    """Divide examples as the split `pooled_systematicity` or `pooled_productivity` says.

    Each example is used once, however often it occurs.
    """

    def is_test(example: Example) -> bool:
        if split == "pooled_systematicity":
            return has_held_out_pair(example.source)
        return int(example.values[0]) > MAX_TRAIN_FUNCTIONS

    distinct = list(dict.fromkeys(pool))
    return {
        "train": [example for example in distinct if not is_test(example)],
        "test": [example for example in distinct if is_test(example)],
    }


def stems_of(split: str) -> list[str]:
    """Return the names of a split's pairs of files, without .src and .tgt."""
    return list(SPLITS.get(split, {}).values() or POOLED_FILES)


def raw_files(raw: Path | None, split: str) -> dict[str, Path]:
    """Return the files of a split by name, from a folder or downloaded.

    Raises:
        InputError: if one is absent, or cannot be downloaded.
    """
    names = [f"{stem}.{side}" for stem in stems_of(split) for side in ("src", "tgt")]
    urls = {
        name: name.replace(SMALL, SMALL_ADDRESS) if name.startswith(SMALL) else ADDRESS + name
        for name in names
    }
    return obtain(raw, "pcfg_set", urls)


def read_split(files: dict[str, Path], split: str, limit: int | None) -> Parts:
    """Read the parts of a split and compare their sizes.

    Args:
        files: those of `raw_files`.

    Raises:
        InputError: if one is wrong; see `check_counts` for the limit.
    """
    stems = stems_of(split)
    with waiting("reading PCFG SET"):
        read = {stem: read_file(files[f"{stem}.src"], files[f"{stem}.tgt"]) for stem in stems}
    if split in SPLITS:
        parts = {part: read[stem] for part, stem in SPLITS[split].items()}
        found = {part: len(examples) for part, examples in parts.items()}
        check_counts(f"PCFG SET {split}", found, PUBLISHED_SIZES[split], limit)
        return parts
    found = {stem: len(examples) for stem, examples in read.items()}
    check_counts("PCFG SET", found, POOLED_FILES, limit)
    parts = divide_pool([example for stem in stems for example in read[stem]], split)
    counts = {part: len(examples) for part, examples in parts.items()}
    print(f"PCFG SET {split}: {sizes(counts)} of {sum(counts.values()):,} distinct examples.")
    return parts


def main(program: str, argv: Sequence[str]) -> None:
    """Read one split and prepare it."""
    parser = make_parser(
        program,
        "Prepare PCFG SET (Hupkes et al., 2020) for fairseq: nested string functions "
        "(`reverse A1 B2`) and the strings that they return (`B2 A1`).",
        "folder with the published files (pcfgset/train.src, ...; plain or .gz); without it they "
        "are downloaded",
        "splits:\n"
        "  pcfgset                   random\n"
        "  systematicity             four pairs of functions occur only in the test set\n"
        "  productivity              at most 8 functions in training, more in the test set\n"
        "  localism                  training as in pcfgset, tests of one function with 2 to 20 "
        "letters\n"
        "  substitutivity            functions and their synonyms, equally frequent; the "
        "additional\n"
        "                            set `twin` is the test set with synonyms\n"
        "  substitutivity_primitive  synonyms occur in training only alone\n"
        "  10k                       random, smaller\n"
        "  pooled_systematicity, pooled_productivity\n"
        "                            not published: the evaluation files of the first three "
        "splits,\n"
        "                            divided again by the rule of that name (for when there "
        "are no\n"
        "                            training files)\n"
        "Evaluation sets have the column `functions`, the number of functions in the source.",
    )
    parser.add_argument(
        "--split", choices=[*SPLITS, *POOLED_SPLITS], default="pcfgset", metavar="NAME",
        help="one of the splits below (default: pcfgset)",
    )  # fmt: skip
    parser.add_argument(
        "--valid-size", type=int, default=1000, metavar="N",
        help="for splits without a validation set: examples held out of the training set "
        "(default: 1000)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if "valid" in SPLITS.get(args.split, ()):
        reason = f"with --split {args.split}, which has a validation set of its own"
        refuse_options(args, ["valid_size"], reason)
    files = raw_files(args.raw, args.split)

    def make_parts() -> Parts:
        return take_validation(read_split(files, args.split, args.limit), args.valid_size)

    prepare(args, files.values(), make_parts, ["functions"], name="pcfg", split=args.split)
