"""Reads the output of fairseq-generate: references and hypotheses, checked for completeness."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sut_data.folders.binarise import binarised_rows
from sut_fairseq import register
from sut_fairseq.errors import InputError

_UNKNOWN = "<<unk>>"  # in a reference: what the dictionary lacks
# T-<id> <tab> reference;  H-<id> and D-<id> <tab> score <tab> hypothesis (D: detokenised).
_LINE = re.compile(r"([THD])-(\d+)(?:\t(.*))?")


def read_generated(path: str | Path, expected: int) -> list[tuple[str, str]]:
    """Reference and best hypothesis of every sentence of a data set, in the data set's order.

    Args:
        path: file with the standard output of fairseq-generate.
        expected: number of sentences in the data set.

    Raises:
        InputError: the output is incomplete, ambiguous, not of this data set, or not UTF-8.
        OSError: the file cannot be read.
    """
    try:
        # newline="\n": a carriage return inside a sentence must not end its line.
        with open(path, encoding="utf-8", newline="\n") as lines:
            return complete_pairs(lines, expected)
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 text.") from error


def complete_pairs(lines: Iterable[str], expected: int) -> list[tuple[str, str]]:
    """Like `read_generated`, but from lines; lines other than T-, H- and D- are skipped."""
    pairs = read_pairs(lines)
    _check_complete(pairs, expected)
    return [pairs[number] for number in range(expected)]


def read_pairs(lines: Iterable[str]) -> dict[int, tuple[str, str]]:
    """Reference and best hypothesis of every sentence in fairseq-generate's output.

    The detokenised hypothesis (D-) is the one comparable with the reference line, which fairseq
    detokenises, too; without D- lines, H- is used. Of several hypotheses (`--nbest`) only the
    first one counts, which is the best.

    Returns:
        sentence number -> (reference, hypothesis).

    Raises:
        InputError: no sentences, two references, or a reference or hypothesis without the other.
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


def find_languages(
    data: str | Path, source_lang: str | None, target_lang: str | None
) -> tuple[str | None, str | None]:
    """Source and target language of a binarised folder, from its file names where not given.

    Raises:
        InputError: the folder does not exist.
    """
    if not Path(data).is_dir():
        raise InputError(f"There is no data folder `{data}`; give what fairseq-preprocess wrote.")
    names = (path.name.split(".") for path in sorted(Path(data).iterdir()))
    pairs = (name[1].split("-") for name in names if len(name) > 2)
    found = next((pair for pair in pairs if len(pair) == 2), [None, None])
    return source_lang or found[0], target_lang or found[1]


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
        InputError: the folder or the subset does not exist, or its index is damaged.
    """
    data = Path(data)
    source, target = find_languages(data, source_lang, target_lang)
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        prefix = data / f"{subset}.{pair}.{target}"
        if all(Path(f"{prefix}.{ending}").exists() for ending in ("idx", "bin")):
            return _rows(prefix)
    present = sorted({path.name.split(".")[0] for path in data.glob("*.idx")})
    raise InputError(
        f"`{data}` has no subset `{subset}` for {source}-{target}; its subsets are: "
        f"{', '.join(present) or 'none'}."
    )


def _rows(prefix: Path) -> int:
    """Number of sentences of a binarised file, whose name lacks its ending."""
    message = f"The index `{prefix}.idx` cannot be read; run fairseq-preprocess again."
    try:
        rows = binarised_rows(Path(f"{prefix}.idx"))
    except (InputError, OSError) as error:
        raise InputError(message) from error
    if rows is not None:
        return rows
    register()  # only here: it takes seconds, and other formats than memory-mapped ones are rare
    from fairseq.data import indexed_dataset

    try:
        kind = indexed_dataset.infer_dataset_impl(str(prefix))
        return len(indexed_dataset.make_dataset(str(prefix), impl=kind))
    except Exception as error:
        # On a damaged index fairseq's readers raise AssertionError, struct.error, ...
        raise InputError(message) from error


def first_difference(references: Sequence[str], lines: Sequence[str]) -> int | None:
    """Number of the first reference that differs from its line; None if none does.

    An unknown word in a reference can stand for any word.
    """
    for number, (reference, line) in enumerate(zip(references, lines)):
        here, there = reference.split(), line.split()
        same = len(here) == len(there) and all(
            word in (other, _UNKNOWN) for word, other in zip(here, there)
        )
        # Joined with its neighbours, an unknown subword leaves nothing to compare.
        if not same and _UNKNOWN not in reference:
            return number
    return None


def read_lines(path: Path, expected: int) -> list[str] | None:
    """Lines of a file of the prepared folder, one for each sentence; None if it is not there."""
    if not path.is_file():
        return None
    try:
        with open(path, encoding="utf-8", newline="\n") as file:  # as in `read_generated`
            lines = [line.rstrip("\r\n") for line in file]
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 ({error}): prepare the data again.") from error
    if len(lines) != expected:
        raise InputError(
            f"`{path}` has {len(lines)} lines, but the data set has {expected} sentences: prepare "
            f"the data again."
        )
    return lines


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
            f"{expected} (numbered from 0); name with --data and --gen-subset what was translated."
        )
    if missing := sorted(set(range(expected)) - pairs.keys()):
        raise InputError(
            f"{len(missing)} of {expected} sentences are missing from the generated file (number "
            f"{_few(missing)}); fairseq-generate drops those that do not fill a batch of a "
            f"multiple of 8 unless it is run with `--required-batch-size-multiple 1`, and too long "
            f"ones with `--skip-invalid-size-inputs-valid-test`; if another set was translated, "
            f"name it with --gen-subset."
        )


def _sentences(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"Sentence {numbers[0]} has"
    return f"{len(numbers)} sentences (number {_few(numbers)}) have"


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers[:5]) + (", ..." if len(numbers) > 5 else "")
