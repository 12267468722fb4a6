"""Multi30k, captions of pictures in English and German (Elliott et al., 2016), for fairseq.

Tokenised and segmented by the code that prepares WMT; no pair is filtered out. 8,000 merges keep
rare symbols few: 522 of the 7,948 that result occur less than 5 times in the 29,000 pairs.
"""

from __future__ import annotations

from pathlib import Path

from raw_files import obtain
from text_files import run
from translation import Corpus, Sets, make_parser, prepare
from treatment import Treatment

PROGRAM = "multi30k.sh"
# The checksums in SHA256SUMS, not the address, say which version of the files is meant.
ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
FILES = {
    "train": ("train", 29_000),
    "valid": ("val", 1_014),
    "test": ("test_2016_flickr", 1_000),
    "test_2017_flickr": ("test_2017_flickr", 1_000),
    "test_2017_mscoco": ("test_2017_mscoco", 461),
}


def main() -> None:
    """Prepare Multi30k as the command line says."""
    parser = make_parser(
        PROGRAM,
        "Prepare Multi30k, English to German: Moses tokenisation and BPE of both languages.\n"
        "Besides the test set of 2016 (`test`) there are `test_2017_flickr` and\n"
        "`test_2017_mscoco`, for `fairseq-generate --gen-subset NAME`.",
        "use the files here (train.en, val.de, ..., plain or .gz) instead of downloading them",
        8_000,
        "Downloads are checked, resumed after an interruption, and kept in data-bin/downloads.",
    )
    parser.add_argument("--reverse", action="store_true", help="German to English")
    args = parser.parse_args()
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
        split="de-en" if args.reverse else None,
    )  # fmt: skip


if __name__ == "__main__":
    run(main, PROGRAM)
