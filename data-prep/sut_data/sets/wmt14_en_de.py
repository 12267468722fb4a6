"""WMT'14, English to German: the recipe of the Sparse Universal Transformer's experiments.

Training text is Europarl v7, Common Crawl and News Commentary v9; validation is newstest2013, the
test set newstest2014. Moses normalisation and tokenisation, joint BPE of 32,000 merges, then
training pairs with 1 to 250 symbols a side and a ratio of at most 1.5. Hyphens stay in their
words, as in the tokenised sample, so that BLEU with compound splitting differs from BLEU without.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from sut_data.errors import InputError
from sut_data.files import read_lines, write_lines
from sut_data.folders.archives import files_of, unpacking
from sut_data.folders.raw_files import find, obtain
from sut_data.kit.corpora import Corpus, Sets, make_parser, prepare
from sut_data.text.treatment import Treatment
from sut_data.waiting import waiting

LANGUAGES = ("en", "de")
TREATMENT = Treatment(languages=LANGUAGES, max_length=250, max_ratio=1.5)

ARCHIVES = (
    "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    "https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
    "https://www.statmt.org/wmt14/dev.tgz",
    "https://www.statmt.org/wmt14/test-full.tgz",
)
# What each archive has: set, files of both sides, published number of pairs.
OFFICIAL = (
    ("train", ("europarl-v7.de-en.en", "europarl-v7.de-en.de"), (1_920_209,)),
    ("train", ("commoncrawl.de-en.en", "commoncrawl.de-en.de"), (2_399_123,)),
    ("train", ("news-commentary-v9.de-en.en", "news-commentary-v9.de-en.de"), (201_288,)),
    ("valid", ("newstest2013.en", "newstest2013.de"), (3_000,)),
    # 2,737 pairs are those of test-filtered.tgz, which some report on.
    (
        "test",
        ("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm"),
        (3_003, 2_737),
    ),
)
# The sample, already tokenised by Moses.
SAMPLE = (
    ("train", "train10k", 10_000),
    ("valid", "newstest2013", 3_000),
    ("test", "newstest2014", 2_737),
)


def sample_sets(raw: Path) -> Sets:
    """Return the sets of the sample of 10,000 training pairs."""
    sets = {}
    for name, file, size in SAMPLE:
        source, target = (find(raw, f"{file}.{side}") for side in LANGUAGES)
        sets[name] = [Corpus(file, source, target, (size,))]
    return sets


def official_files(raw: Path | None) -> list[list[Path]]:
    """Return the file or files that each corpus comes in: its archive, or its two sides.

    Raises:
        InputError: if one is absent, or cannot be downloaded.
    """
    archives = {address.rsplit("/", 1)[1]: address for address in ARCHIVES}
    if raw is None:
        return [[path] for path in obtain(None, "wmt14", archives).values()]
    return [
        [raw / archive] if (raw / archive).is_file() else [find(raw, name) for name in names]
        for archive, (_, names, _) in zip(archives, OFFICIAL)
    ]


def official_sets(files: list[list[Path]], folder: Path) -> Sets:
    """Return the sets of the official files, unpacked into `folder` if they are in archives.

    Raises:
        InputError: if an archive cannot be used.
    """
    sets: Sets = {"train": [], "valid": [], "test": []}
    for paths, (part, names, sizes) in zip(files, OFFICIAL):
        if len(paths) == 1:
            paths = unpack(paths[0], names, folder)
        source, target = (plain(p, folder) if ".sgm" in p.suffixes else p for p in paths)
        sets[part].append(Corpus(names[0].rsplit(".", 1)[0], source, target, sizes))
    return sets


def unpack(archive: Path, names: tuple[str, str], folder: Path) -> list[Path]:
    """Extract two files from an archive, whatever folder of it they are in.

    Raises:
        InputError: if the archive is damaged or lacks one.
    """
    missing = set(names)
    with unpacking(archive), waiting(f"unpacking {archive.name}"):
        for name, stream in files_of(archive, names):
            with open(folder / name, "wb") as copy:
                shutil.copyfileobj(stream, copy)
            missing.discard(name)
    if missing:
        raise InputError(f"{archive} does not hold {min(missing)}: fetch it again.")
    return [folder / name for name in names]


def segments(path: Path) -> Iterator[str]:
    """Yield the sentences of an SGML file, which are marked `<seg id="1">...</seg>`.

    Entities become characters (`&amp;` becomes `&`), as they are in the training text.
    """
    for line in read_lines(path):
        match = re.search(r"<seg\b[^<>]*>(.*)</seg>", line)
        if match:
            yield html.unescape(match[1]).strip()


def plain(path: Path, folder: Path) -> Path:
    """Write the sentences of an SGML file to `folder`, one a line."""
    text = folder / f"{path.name}.txt"
    write_lines(text, segments(path))
    return text


def is_sample(raw: Path | None) -> bool:
    """Whether a folder holds the sample rather than the official files."""
    return raw is not None and any(
        True for pattern in ("train10k.en*", "*/train10k.en*") for _ in raw.glob(pattern)
    )


def main(program: str, argv: Sequence[str]) -> None:
    """Prepare WMT'14 as the command line says."""
    parser = make_parser(
        program,
        "Prepare WMT'14 English to German: Europarl v7, Common Crawl and News Commentary v9 for "
        "training (4,520,620 pairs before filtering), newstest2013 and newstest2014. Moses "
        "normalisation and tokenisation, joint BPE and dictionary; training pairs with more than "
        "250 symbols on one side, or one side more than 1.5 times as long, are dropped (and "
        "counted).",
        "use the official archives or the files in them (europarl-v7.de-en.en, ..., also .gz) "
        "here, or the tokenised sample (train10k.en, newstest2013.en, ...)",
        32_000,
        "Without --raw, about 1.7 GB are downloaded from www.statmt.org. Interrupted downloads "
        "continue; finished ones stay in data-bin/downloads and are compared with known checksums. "
        "For dev.tgz and test-full.tgz none are known: those of the first download are printed, "
        "recorded (<file>.sha256) and required from then on.",
    )
    args = parser.parse_args(argv)
    if is_sample(args.raw):
        print(
            "--raw holds the tokenised sample, 10,000 training pairs of the 4,520,620: scores of "
            "models trained on it say nothing about WMT'14.",
            flush=True,
        )
        sets = sample_sets(args.raw)
        raw = [path for (corpus,) in sets.values() for path in (corpus.source, corpus.target)]
        treatment = TREATMENT._replace(tokenized=True)
        prepare(args, raw, lambda _: sets, treatment, name="wmt14", split="sample")
    else:
        files = official_files(args.raw)
        prepare(
            args, chain.from_iterable(files), lambda folder: official_sets(files, folder),
            TREATMENT, name="wmt14", split="full",
        )  # fmt: skip
