"""CFQ of Keysers et al. (2020): English questions and SPARQL queries.

The data are read in either of two forms:

    official    dataset.json and splits/<split>.json, in a folder or still in the archive; both
                sides are tokenised as the authors' own preparation does
    tokenised   <split>/train_encode.txt, train_decode.txt, dev_..., test_..., already in that form

Queries are then simplified (`sparql.py`), which loses nothing: every one is checked.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path

from sut_data.errors import InputError
from sut_data.folders.raw_files import find
from sut_data.kit.examples import Example, Parts, check_counts, make_parser, prepare
from sut_data.sets.cfq import sparql
from sut_data.sets.cfq.official import download, find_official, official_files, read_official
from sut_data.text.pairs import read_pairs
from sut_data.waiting import waiting

SIDES = {"train": "train", "valid": "dev", "test": "test"}
MCD_SIZES = {"train": 95_743, "valid": 11_968, "test": 11_968}
PUBLISHED_SIZES = {
    "mcd1": MCD_SIZES,
    "mcd2": MCD_SIZES,
    "mcd3": MCD_SIZES,
    "random": {"train": 95_744, "test": 11_967},
}


def tokenise_question(question: str) -> str:
    """Separate every punctuation mark: `Did M1's sibling` becomes `Did M1 ' s sibling`."""
    return " ".join("".join(f" {c} " if c in string.punctuation else c for c in question).split())


def tokenise_query(query: str) -> str:
    """Strip `ns:` from the start of words, write `m.05zppz` as `m_05zppz`, split `count(*)`."""
    words = []
    for word in query.replace("count(*)", "count ( * )").split():
        word = word[3:] if word.startswith("ns:") else word
        words.append("m_" + word[2:] if word.startswith("m.") else word)
    return " ".join(words)


def make_example(question: str, query: str, place: str, simplify: bool) -> Example:
    """Pair a tokenised question with its query, and check that simplifying loses nothing.

    Args:
        place: file and line, for the error.
        simplify: whether the target is the simplified query.

    Raises:
        InputError: if the query is not of CFQ's form.
    """
    values = (str(len(query.split())),)
    try:
        target = sparql.simplify(query)
    except ValueError as error:
        raise InputError(f"{place}: this is not a CFQ query: {error}.") from error
    if sparql.conjuncts(target) != sparql.conjuncts(query):
        raise InputError(f"{place}: the simplified query would not mean the same; this is a bug.")
    return Example(question, target if simplify else query, values)


def read_tokenised(questions: Path, queries: Path, simplify: bool) -> list[Example]:
    """Read every line of a pair of aligned files.

    Raises:
        InputError: if their numbers of lines differ, or a line is wrong; it names the first.
    """
    examples = []
    for number, (question, query) in enumerate(read_pairs(questions, queries), start=1):
        if not question.split():
            raise InputError(f"{questions}, line {number} is blank: every query has a question.")
        words = " ".join(question.split()), " ".join(query.split())
        examples.append(make_example(*words, f"{queries}, line {number}", simplify))
    return examples


def find_tokenised(raw: Path, split: str) -> Path | None:
    """Return the folder of a split's tokenised files; None if there is none.

    The files do not say which split they are, so the folder must be named after it.
    """
    for folder in (raw / split, raw.resolve()):
        if folder.name == split and any(folder.glob("train_encode.txt*")):
            return folder
    return None


def tokenised_files(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Return the files of each part in a folder that `find_tokenised` found.

    Raises:
        InputError: if one is absent.
    """
    return {
        part: (find(folder, f"{side}_encode.txt"), find(folder, f"{side}_decode.txt"))
        for part, side in SIDES.items()
    }


def read_split(raw: Path, split: str, simplify: bool) -> Parts:
    """Read a split in whichever form is present.

    Raises:
        InputError: if there is neither, or its data are wrong.
    """
    folder = find_tokenised(raw, split)
    if folder is not None:
        files = tokenised_files(folder)
        return {part: read_tokenised(*pair, simplify) for part, pair in files.items()}
    return {
        part: [
            make_example(tokenise_question(question), tokenise_query(query), place, simplify)
            for place, question, query in rows
        ]
        for part, rows in zip(SIDES, read_official(find_official(raw, split), split))
    }


def raw_files(raw: Path, split: str) -> list[Path]:
    """Return the files that `read_split` reads."""
    folder = find_tokenised(raw, split)
    if folder is None:
        return official_files(find_official(raw, split), split)
    return [path for pair in tokenised_files(folder).values() for path in pair]


def report_lengths(parts: Parts) -> None:
    """Print how long the targets are, and how long the published queries were."""
    examples = [example for part in parts.values() for example in part]
    before = [int(example.values[0]) for example in examples]
    after = [len(example.target.split()) for example in examples]
    if examples:
        print(
            f"Words per query: mean {sum(before) / len(before):.1f}, at most {max(before)} as "
            f"published; mean {sum(after) / len(after):.1f}, at most {max(after)} as targets."
        )


def main(program: str, argv: Sequence[str]) -> None:
    """Read one split and prepare it."""
    parser = make_parser(
        program,
        "Prepare CFQ (Keysers et al., 2020) for fairseq: questions and SPARQL queries.",
        "folder with dataset.json and splits/<split>.json, or with the archive cfq1.1.tar.gz, or "
        "with <split>/{train,dev,test}_{encode,decode}.txt, plain or .gz; without it the archive "
        "is downloaded (255 MB)",
        "Targets are simplified queries: triples that form a product of subjects, predicates and "
        "objects are merged into one clause, and clauses are sorted. This loses nothing: each "
        "query is expanded again and compared. Evaluation sets have the column `query_length`, the "
        "number of words of the published query.",
    )
    parser.add_argument(
        "--split", choices=list(PUBLISHED_SIZES), default="mcd1", help="default: mcd1"
    )
    parser.add_argument("--no-simplify", action="store_true", help="keep the published queries")
    args = parser.parse_args(argv)
    raw = download() if args.raw is None else args.raw

    def make_parts() -> Parts:
        with waiting("reading CFQ"):
            parts = read_split(raw, args.split, not args.no_simplify)
        found = {part: len(examples) for part, examples in parts.items()}
        check_counts(f"CFQ {args.split}", found, PUBLISHED_SIZES[args.split], args.limit)
        report_lengths(parts)
        return parts

    files = raw_files(raw, args.split)
    prepare(args, files, make_parts, ["query_length"], name="cfq", split=args.split)
