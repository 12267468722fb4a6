"""Multi30k (Elliott et al., 2016): captions of pictures in English and German.

Tokenised and segmented by the code that prepares WMT; no pair is filtered out. With 8,000
merges, few symbols are rare: 522 of the 7,948 occur fewer than 5 times in the 29,000 pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sut_data.folders.raw_files import obtain
from sut_data.kit.corpora import Corpus, Sets, make_parser, prepare
from sut_data.text.treatment import Treatment

# The checksums in SHA256SUMS, not the address, say which version of the files is meant.
ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
FILES = {
    "train": ("train", 29_000),
    "valid": ("val", 1_014),
    "test": ("test_2016_flickr", 1_000),
    "test_2017_flickr": ("test_2017_flickr", 1_000),
    "test_2017_mscoco": ("test_2017_mscoco", 461),
}


def main(program: str, argv: Sequence[str]) -> None:
    """Prepare Multi30k as the command line says."""
    parser = make_parser(
        program,
        "Prepare Multi30k, English to German: Moses tokenisation and BPE of both languages. "
        "Besides the test set of 2016 (`test`) there are `test_2017_flickr` and "
        "`test_2017_mscoco`, for `fairseq-generate --gen-subset NAME`.",
        "use the files here (train.en, val.de, ..., plain or .gz) instead of downloading them",
        8_000,
        "Downloads are checked, resumed after an interruption, and kept in data-bin/downloads.",
    )
    parser.add_argument("--reverse", action="store_true", help="German to English")
    args = parser.parse_args(argv)
    source, target = ("de", "en") if args.reverse else ("en", "de")

    names = [f"{file}.{side}" for file, _ in FILES.values() for side in (source, target)]
    raw = obtain(args.raw, "multi30k", {name: f"{ADDRESS}{name}.gz" for name in names})

    def find_sets(_: Path) -> Sets:
        return {
            part: [
                Corpus(
                    f"Multi30k {file}", raw[f"{file}.{source}"], raw[f"{file}.{target}"], (size,)
                )
            ]
            for part, (file, size) in FILES.items()
        }

    prepare(
        args, raw.values(), find_sets, Treatment(languages=(source, target)), name="multi30k",
        split="de_en" if args.reverse else "en_de",
    )  # fmt: skip
