"""`sut-exact-match`: share of sentences which fairseq-generate got entirely right."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sut_fairseq.cli._command import print_json, run_command
from sut_fairseq.modules.errors import InputError

# T-<id> <tab> reference;  H-<id> and D-<id> <tab> score <tab> hypothesis (D: detokenised).
_LINE = re.compile(r"([THD])-(\d+)(?:\t(.*))?")


@dataclass(frozen=True)
class ExactMatch:
    """Number of sentences that are right, that were scored, and that the data set has."""

    correct: int
    scored: int
    expected: int

    @property
    def percent(self) -> float:
        """Exact match in per cent, 0 to 100."""
        return 100 * self.correct / self.scored

    def __str__(self) -> str:
        return f"exact match {self.percent:.2f} % ({self.correct} of {self.scored} sentences)"


def score_generation(lines: Iterable[str], expected: int) -> ExactMatch:
    """Exact match of what fairseq-generate printed.

    Args:
        lines: its output; lines other than T-, H- and D- are skipped.
        expected: number of sentences in the data set.

    Raises:
        ValueError: the output is incomplete, ambiguous, or not of this data set.
    """
    pairs = read_pairs(lines)
    _check_complete(pairs, expected)
    correct = sum(reference == hypothesis for reference, hypothesis in pairs.values())
    return ExactMatch(correct=correct, scored=len(pairs), expected=expected)


def read_pairs(lines: Iterable[str]) -> dict[int, tuple[str, str]]:
    """Reference and best hypothesis of every sentence in fairseq-generate's output.

    The detokenised hypothesis (D-) is the one comparable with the reference line, which fairseq
    detokenises too; H- stands in where there is none. Of several hypotheses (`--nbest`) the first
    counts, which is the best one.

    Returns:
        sentence number -> (reference, hypothesis).

    Raises:
        ValueError: no sentences, a reference twice, or one without the other.
    """
    texts: dict[str, dict[int, str]] = {"T": {}, "H": {}, "D": {}}
    for line in lines:
        match = _LINE.fullmatch(line.rstrip("\r\n"))
        if match is None:
            continue
        kind, sentence, text = match[1], int(match[2]), match[3] or ""
        if kind == "T":
            if sentence in texts["T"]:
                raise InputError(
                    f"Sentence {sentence} occurs twice (two lines T-{sentence}); give the output "
                    f"of one run of fairseq-generate."
                )
            texts["T"][sentence] = text.strip()
        else:
            hypothesis = text.partition("\t")[2]
            texts[kind].setdefault(sentence, hypothesis.strip())
    references, hypotheses = texts["T"], {**texts["H"], **texts["D"]}
    _check_paired(references, hypotheses)
    return {number: (text, hypotheses[number]) for number, text in references.items()}


def count_sentences(
    data: str | Path,
    subset: str = "test",
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> int:
    """Number of sentences in a binarised data set, from the index of its target side.

    Args:
        data: folder written by fairseq-preprocess.
        subset: `train`, `valid`, `test`, ...
        source_lang, target_lang: languages; taken from the file names when not given.

    Raises:
        ValueError: the folder or the subset is not there, or its index is damaged.
    """
    from fairseq.data import data_utils, indexed_dataset

    data = Path(data)
    if not data.is_dir():
        raise InputError(f"There is no data folder `{data}`; give what fairseq-preprocess wrote.")
    found = data_utils.infer_language_pair(str(data))
    source, target = source_lang or found[0], target_lang or found[1]
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        prefix = str(data / f"{subset}.{pair}.{target}")
        if not indexed_dataset.IndexedDataset.exists(prefix):
            continue
        try:
            kind = indexed_dataset.infer_dataset_impl(prefix)
            return len(indexed_dataset.make_dataset(prefix, impl=kind))
        except Exception as error:
            # fairseq's readers answer a damaged index with AssertionError, struct.error, ...
            raise InputError(
                f"The index `{prefix}.idx` cannot be read; run fairseq-preprocess again."
            ) from error
    present = sorted({path.name.split(".")[0] for path in data.glob("*.idx")})
    raise InputError(
        f"`{data}` has no subset `{subset}` for {source}-{target}; its subsets are: "
        f"{', '.join(present) or 'none'}."
    )


def _check_paired(references: Mapping[int, str], hypotheses: Mapping[int, str]) -> None:
    if not references and not hypotheses:
        raise InputError(
            "The generated file has no T- and H- lines; give the standard output of "
            "fairseq-generate run without --quiet."
        )
    if unanswered := sorted(references.keys() - hypotheses.keys()):
        raise InputError(
            f"{_sentences(unanswered)} a reference (T-) but no hypothesis (H-); was "
            f"fairseq-generate stopped early? Run it again to its end."
        )
    if unknown := sorted(hypotheses.keys() - references.keys()):
        raise InputError(
            f"{_sentences(unknown)} a hypothesis (H-) but no reference (T-); binarise the data "
            f"with its target side and generate again."
        )


def _check_complete(pairs: Mapping[int, tuple[str, str]], expected: int) -> None:
    if foreign := [number for number in sorted(pairs) if number >= expected]:
        raise InputError(
            f"The generated file has a sentence {foreign[-1]}, but the data set has only "
            f"{expected} (numbered from 0); give the data and subset that were generated from."
        )
    if missing := sorted(set(range(expected)) - pairs.keys()):
        raise InputError(
            f"{len(missing)} of {expected} sentences are missing from the generated file (number "
            f"{_few(missing)}); fairseq-generate drops those that do not fill a batch of a "
            f"multiple of 8 unless it is run with `--required-batch-size-multiple 1`, and too long "
            f"ones with `--skip-invalid-size-inputs-valid-test`."
        )


def _sentences(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"Sentence {numbers[0]} has"
    return f"{len(numbers)} sentences (number {_few(numbers)}) have"


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers[:5]) + (", ..." if len(numbers) > 5 else "")


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but is {text!r}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sut-exact-match",
        description="Share of sentences that fairseq-generate got exactly right. What was scored "
        "is compared with what there is: a missing sentence is an error, never a better score.",
    )
    parser.add_argument(
        "generated", metavar="GENERATED", help="standard output of fairseq-generate, in a file"
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument(
        "--data",
        metavar="DATA-BIN",
        help="binarised data that was generated from; its index tells how many sentences there are",
    )
    size.add_argument(
        "--expected", type=_count, metavar="N", help="number of sentences, instead of --data"
    )
    parser.add_argument(
        "--gen-subset", default="test", help="subset that was generated (default: %(default)s)"
    )
    parser.add_argument(
        "--source-lang", metavar="SRC", help="source language (default: from the file names)"
    )
    parser.add_argument(
        "--target-lang", metavar="TGT", help="target language (default: from the file names)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print exact_match (in per cent), correct, scored and expected as JSON",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Score a generated file and print the result; returns the exit code."""
    arguments = _parser().parse_args(argv)

    def body() -> None:
        expected = arguments.expected or count_sentences(
            arguments.data, arguments.gen_subset, arguments.source_lang, arguments.target_lang
        )
        try:
            # newline="\n": a carriage return inside a sentence must not end its line.
            with open(arguments.generated, encoding="utf-8", newline="\n") as lines:
                result = score_generation(lines, expected)
        except UnicodeDecodeError as error:
            raise InputError(f"`{arguments.generated}` is not UTF-8 text.") from error
        if arguments.json:
            print_json(
                {
                    "exact_match": result.percent,
                    "correct": result.correct,
                    "scored": result.scored,
                    "expected": result.expected,
                }
            )
        else:
            print(result)

    return run_command("sut-exact-match", body)


if __name__ == "__main__":
    sys.exit(main())
