"""The command `long_lookup_tables`: a variant, generated or from the published files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sut_data.errors import InputError
from sut_data.files import read_lines
from sut_data.folders.raw_files import find
from sut_data.kit.examples import Example, Parts, check_counts, make_parser, prepare
from sut_data.kit.preparation import refuse_options
from sut_data.sets.long_lookup_tables.generation import (
    LONGER,
    Draw,
    Lookups,
    add_noise,
    make_lookups,
    make_tables,
)
from sut_data.sets.long_lookup_tables.variants import VARIANTS, Lookup, Tables, Variant, parse
from sut_data.waiting import waiting

COLUMNS = ["attention", "tables", "set"]
# The folder of a variant, here and in the repository of its authors.
FOLDERS = {
    "long": ("long", "LongLookupTables/sample1"),
    "reverse": ("reverse", "LongLookupTablesReverse"),
    "noisy": ("noisy_single", "NoisyLongLookupTablesSingle"),
}
PUBLISHED_SIZES = {
    "train": 9081,
    "valid": 475,
    "heldout_inputs": 2492,
    "heldout_compositions": 400,
    "heldout_tables": 5000,
    "new_compositions": 128,
    **{f"longer_seen_{more}": 5000 for more in LONGER},
    **{f"longer_incremental_{more}": 5000 for more in LONGER},
    **{f"longer_new_{more}": 128 * 2**more for more in LONGER},
}
# What the paper calls interpolation and long 1 to 5: the sets of its six tables.
PAPER_SETS = {
    "interpolation": ("heldout_inputs", "heldout_compositions"),
    **{f"long_{more}": (f"longer_seen_{more}",) for more in LONGER},
}


def file_name(part: str) -> str:
    """Return the published name of the file of a part."""
    return f"{'validation' if part == 'valid' else part}.tsv"


def find_files(raw: Path, variant: str) -> dict[str, Path]:
    """Return the published files of a variant by part.

    Raises:
        InputError: if one is absent.
    """
    inside = [raw / name for name in FOLDERS[variant] if (raw / name).is_dir()]
    folder = inside[0] if inside else raw
    return {part: find(folder, file_name(part)) for part in PUBLISHED_SIZES}


def read_file(path: Path, variant: Variant) -> list[tuple[Lookup, str]]:
    """Read lookups and their targets.

    Raises:
        InputError: naming the first line that is not `source TAB target` of this variant, or whose
            third field is not the gold attention.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}, line {number}"
        source, *rest = line.split("\t")
        if len(rest) not in (1, 2) or not rest[0].strip():
            raise InputError(
                f"{place}: expected `source TAB target`, or with `TAB attention`, but found "
                f"`{line[:60]}`."
            )
        try:
            lookup = parse(source, variant)
        except ValueError as error:
            raise InputError(f"{place}: {error}: check --split.") from error
        gold = " ".join(map(str, variant.attention(lookup)))
        if rest[1:] not in ([], [gold]):
            raise InputError(f"{place}: the gold attention is `{gold}`, not `{rest[1][:60]}`.")
        found.append((lookup, rest[0]))
    return found


def tables_of(train: list[tuple[Lookup, str]]) -> Tables:
    """Return the tables, as the lookups with a single table show them.

    Raises:
        InputError: if there are no such lookups.
    """
    tables: Tables = {}
    for lookup, target in train:
        if len(lookup.tables) == 1:
            tables.setdefault(lookup.tables[0], {})[lookup.string] = target.split()[-1]
    if not tables:
        raise InputError(
            "the training file has no line with one table, so no table is known: give the "
            "published one."
        )
    return tables


def read_all(files: dict[str, Path], variant: Variant) -> tuple[Lookups, Tables]:
    """Read published files and check every target.

    Raises:
        InputError: naming the first line that cannot be read, or whose target differs from that
            of the tables.
    """
    read = {part: read_file(path, variant) for part, path in files.items()}
    tables = tables_of(read["train"])
    for part, pairs in read.items():
        for number, (lookup, target) in enumerate(pairs, start=1):
            try:
                right = lookup.target(tables)
            except KeyError as error:
                raise InputError(
                    f"{files[part]}, line {number}: {error} is not among the values or tables "
                    f"that {files['train'].name} shows one by one."
                ) from error
            if target != right:
                raise InputError(
                    f"{files[part]}, line {number}: the target is `{right}`, not `{target[:60]}`; "
                    "the file is not the published one."
                )
    return {part: [lookup for lookup, _ in pairs] for part, pairs in read.items()}, tables


def make_parts(lookups: Lookups, tables: Tables, variant: Variant) -> Parts:
    """Return examples by part; `test` has the paper's sets one after the other."""

    def example(lookup: Lookup, name: str) -> Example:
        return Example(
            " ".join(variant.write(lookup)),
            lookup.target(tables),
            (" ".join(map(str, variant.attention(lookup))), str(len(lookup.tables)), name),
        )

    parts = {name: [example(one, name) for one in some] for name, some in lookups.items()}
    test = [
        example(one, name)
        for name, sets in PAPER_SETS.items()
        for of in sets
        for one in lookups[of]
    ]
    return {"train": parts.pop("train"), "valid": parts.pop("valid"), "test": test, **parts}


def main(program: str, argv: Sequence[str]) -> None:
    """Make one variant and prepare it."""
    parser = make_parser(
        program,
        "Prepare long lookup tables (Dubois et al., 2020) for fairseq: a string of 3 bits and the "
        "tables that are applied to it as sources (`001 t1 t4 .`), the values as targets (`001 001 "
        "100`), and the gold attention. Without --raw they are generated: nothing is downloaded.",
        "read the published files instead of generating: train.tsv, validation.tsv, ..., plain or "
        ".gz, or a folder with a folder of them for each variant (LongLookupTables/sample1, "
        "LongLookupTablesReverse, NoisyLongLookupTablesSingle)",
        "Training has 1 to 4 tables. `test` holds the paper's test sets, which the column `set` "
        "names: `interpolation` (4 tables), and `long_1` to `long_5` (5 to 9 tables). By "
        "themselves there are all published sets: heldout_inputs and heldout_compositions "
        "(together the interpolation set), longer_seen_1 to longer_seen_5 (long_1 to long_5), and "
        "with tables that training has only one by one heldout_tables, new_compositions, "
        "longer_incremental_1 to _5 and longer_new_1 to _5. The columns are `attention` (the "
        "positions in the source, from 0, that the words of the target and its end depend on), "
        "`tables` (how many) and `set`. The variant `noisy` has 0 to 9 tables before the `!`, as "
        "the published files; the paper says 0 to 10.",
    )
    parser.add_argument(
        "--split", choices=[*VARIANTS], default="long",
        help="the variant: long (`001 t1 t4 .`, default), reverse (`t4 t1 001 .`) or noisy start "
        "(`001 t5 t2 ! t1 t4 .`)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N",
        help="of the generated tables and sets; the same in all variants (default: 1)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.raw is not None:
        refuse_options(args, ["seed"], "with --raw, which reads tables and generates none")
    variant = VARIANTS[args.split]
    files = {} if args.raw is None else find_files(args.raw, args.split)

    def make() -> Parts:
        with waiting("making the lookups"):
            if files:
                lookups, tables = read_all(files, variant)
            else:
                draw = Draw(args.seed)
                lookups, tables = make_lookups(draw), make_tables(draw)
                if args.split == "noisy":
                    lookups = add_noise(draw, lookups)
        found = {part: len(some) for part, some in lookups.items()}
        name = f"long lookup tables, {args.split} ({'published files' if files else 'generated'})"
        check_counts(name, found, PUBLISHED_SIZES, args.limit)
        return make_parts(lookups, tables, variant)

    prepare(args, files.values(), make, COLUMNS, name="long_lookup_tables", split=args.split)
