"""COGS (Kim and Linzen, 2020): English sentences and their logical forms.

A line of the published files is `sentence TAB logical form TAB type`; gen.tsv has 1,000
lines of each of 21 types of generalisation. What most of these types ask about, train.tsv shows
once: 143 words by themselves (`primitive`), 12 words in one construction (`exposure_example_...`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sut_data.command_line import whole_number
from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders.raw_files import obtain
from sut_data.kit.examples import Example, Parts, check_counts, make_parser, prepare
from sut_data.waiting import waiting

ADDRESS = "https://raw.githubusercontent.com/najoungkim/COGS/main/data/"
FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv", "gen": "gen.tsv"}
PUBLISHED_SIZES = {"train": 24_155, "valid": 3_000, "test": 3_000, "gen": 21_000}
TYPES, LINES_OF_A_TYPE = 21, 1_000
IN_DISTRIBUTION = "in_distribution"
MOST_EXPOSURES = 1_000


def read_file(path: Path) -> list[Example]:
    """Read one published file, every line of it.

    Raises:
        InputError: naming the first line without three non-blank fields.
    """
    examples = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = [" ".join(field.split()) for field in line.split("\t")]
        if len(fields) != 3 or not all(fields):
            raise InputError(
                f"{path}, line {number}: expected `sentence TAB logical form TAB type`, "
                f"but found `{line[:60]}`."
            )
        examples.append(Example(fields[0], fields[1], (fields[2],)))
    return examples


def check_types(gen: list[Example], limit: int | None) -> None:
    """Compare the types of the generalisation set with the published ones, as `check_counts`."""
    types = Counter(example.values[0] for example in gen)
    published = {
        "types": TYPES,
        "in the smallest": LINES_OF_A_TYPE,
        "in the largest": LINES_OF_A_TYPE,
    }
    counts = types.values() or [0]
    found = {"types": len(types), "in the smallest": min(counts), "in the largest": max(counts)}
    check_counts("COGS gen", found, published, limit)


def repeat_exposures(train: list[Example], times: int) -> list[Example]:
    """Return the training set with every primitive and exposure example `times` times in it."""
    exposures = [example for example in train if example.values[0] != IN_DISTRIBUTION]
    repeated = train + exposures * (times - 1)
    if times > 1:
        print(f"--exposures: {len(exposures)} examples {times} times, {len(repeated):,} in train.")
    return repeated


def main(program: str, argv: Sequence[str]) -> None:
    """Read the published files and prepare them."""
    parser = make_parser(
        program,
        "Prepare COGS (Kim and Linzen, 2020) for fairseq: sentences and their logical forms.",
        "folder with train.tsv, dev.tsv, test.tsv and gen.tsv (the corrected one of 2022), plain "
        "or .gz; without it they are downloaded",
        "The generalisation set is the additional set `gen` (`fairseq-generate --gen-subset gen`); "
        "its column `type` holds the 21 types of generalisation. valid and test have that column "
        "too. No model can get all of gen right: 1,634 of its logical forms, nearly all of "
        "cp_recursion and pp_recursion, have words that the training set lacks (variables "
        "numbered above 18).",
    )
    parser.add_argument(
        "--exposures", type=whole_number, default=1, metavar="N",
        help="have each primitive and exposure example N times in the training set (default: 1, as "
        "published); a short training sees them too rarely otherwise, and gets hardly any of `gen` "
        "right",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.exposures > MOST_EXPOSURES:
        parser.error(f"--exposures must be at most {MOST_EXPOSURES:,}, but is {args.exposures:,}")
    files = obtain(args.raw, "cogs", {name: ADDRESS + name for name in FILES.values()})

    def make_parts() -> Parts:
        with waiting("reading COGS"):
            parts = {part: read_file(files[name]) for part, name in FILES.items()}
        found = {part: len(examples) for part, examples in parts.items()}
        check_counts("COGS", found, PUBLISHED_SIZES, args.limit)
        check_types(parts["gen"], args.limit)
        return {**parts, "train": repeat_exposures(parts["train"], args.exposures)}

    split = None if args.exposures == 1 else f"exposures_{args.exposures}"
    prepare(args, files.values(), make_parts, ["type"], name="cogs", split=split)
