"""From the files of a parallel corpus to the symbols that are binarised.

Each split is read twice: once to tokenise it (and to count the words from which subwords are
learnt), once to segment it and to leave out training pairs that are unfit. Nothing is held in
memory but counts and a few chunks of lines.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sut_data.files import read_lines
from sut_data.text.chunks import Pairs, cores, in_chunks, ordered_map, write_pairs
from sut_data.text.overlap import count_trained
from sut_data.text.pairs import SIDES, Inputs, check_text, copy_columns, read_pairs
from sut_data.text.segmentation import Segmenter, Vocabulary
from sut_data.text.subwords import (
    SENTENCEPIECE_SENTENCES,
    count_words,
    learn_bpe,
    learn_sentencepiece,
)
from sut_data.text.tokenization import (
    TextSide,
    load_tokenization,
    save_tokenization,
    text_side,
)
from sut_data.text.treatment import Counts, Treatment
from sut_data.waiting import waiting

PARALLEL_FROM = 10_000  # pairs of a set; below, starting processes costs more than it saves


class Tokenized(NamedTuple):
    """A chunk after the first step: its words, the raw text where it is kept, and word counts."""

    words: Pairs
    raw: Pairs
    counts: tuple[Counter[str], Counter[str]]


def tokenize_chunk(treatment: Treatment, training: bool, chunk: Pairs) -> Tokenized:
    """Tokenise pairs of lines; count training words, keep the raw text of evaluation sets."""
    sides = [text_side(language, "words", None) for language in treatment.languages]
    words, raw = [], []
    for pair in chunk:
        if treatment.tokenized:
            found = [" ".join(line.split()) for line in pair]
            shown = [side.detokenize(line) for side, line in zip(sides, found)]
        else:
            found = [side.tokenize(line) for side, line in zip(sides, pair)]
            shown = [" ".join(line.split()) for line in pair]
        words.append((found[0], found[1]))
        if not training:
            raw.append((shown[0], shown[1]))
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    if training and treatment.subwords == "bpe":
        for pair in words:
            for count, line in zip(counts, pair):
                count.update(line.split())
    return Tokenized(words, raw, counts)


def workers_for(lines: dict[str, int]) -> int:
    """Return how many processes are worth starting for sets of these sizes."""
    return cores() if max(lines.values()) >= PARALLEL_FROM else 1


def tokenize(
    inputs: Inputs, treatment: Treatment, lines: dict[str, int], words: Path, text: Path
) -> tuple[Counter[str], Counter[str]]:
    """Write the words of every split to `words`, the raw text of evaluation sets to `text`.

    Returns:
        how often each word occurs on each side of the training text; empty without BPE.
    """
    workers = workers_for(lines)
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for split, pair in inputs.pairs.items():
        work = partial(tokenize_chunk, treatment, split == "train")
        read = in_chunks(read_pairs(*pair), f"tokenising {split}", lines[split])
        for done in ordered_map(work, read, workers):
            write_pairs(words / split, done.words)
            if split != "train":
                write_pairs(text / f"{split}.raw", done.raw)
            for count, more in zip(counts, done.counts):
                count_words(count, more)
    return counts


def sample(paths: list[Path], lines: int) -> Iterator[str]:
    """Yield evenly spaced lines of files of `lines` lines, at most what the learner can hold."""
    step = -(-len(paths) * lines // SENTENCEPIECE_SENTENCES)
    for path in paths:
        yield from (line for line in islice(read_lines(path), 0, None, step) if line)


def learn(
    treatment: Treatment,
    counts: tuple[Counter[str], Counter[str]],
    words: Path,
    lines: int,
    folder: Path,
) -> dict[str, TextSide]:
    """Learn the subwords and return how each side is made.

    Args:
        treatment: what is done to the text.
        counts: of the words on both sides of the training text, for BPE.
        words: folder with the tokenised training text, for sentencepiece.
        lines: pairs of the training text.
        folder: where `subwords.bpe` or `subwords.model` go, or `subwords.src.bpe` and so on.
    """
    suffix = {"bpe": "bpe", "sentencepiece": "model"}.get(treatment.subwords)
    models: dict[str, Path] = {}
    groups = [SIDES] if treatment.joined else [(side,) for side in SIDES]
    for group in groups if suffix else ():
        name = "" if treatment.joined else f"{group[0]}."
        model = folder / f"subwords.{name}{suffix}"
        if suffix == "bpe":
            total: Counter[str] = Counter()
            for side in group:
                total.update(counts[SIDES.index(side)])
            learn_bpe(total, treatment.size, model)
        else:
            sentences = sample([words / f"train.{side}" for side in group], lines)
            with waiting("learning sentencepiece"):
                learn_sentencepiece(sentences, treatment.size, model, cores())
        models.update(dict.fromkeys(group, model))
    return {
        side: TextSide(language, treatment.subwords, models.get(side))
        for side, language in zip(SIDES, treatment.languages)
    }


def prepare_text(
    inputs: Inputs, treatment: Treatment, folder: Path, prepared: Path | None = None
) -> dict[str, Counts]:
    """Check all files and write what will be binarised to `<folder>/text`.

    It writes `<split>.src` and `<split>.tgt`, symbols separated by spaces, the columns, and, where
    the symbols are not the words of the files, `<split>.raw.src` and `<split>.raw.tgt` of the
    evaluation sets: the text as it was given, for scores on readable text. (For text that came
    tokenised, this is the output of Moses' detokeniser.)

    Args:
        inputs: the files.
        treatment: what is done to their text.
        folder: where to write.
        prepared: a folder made by the same treatment, to which the files add sets; its subwords
            and vocabulary are used. None means that the files include a training text.

    Returns:
        the counts of each split.

    Raises:
        InputError: if the files cannot be used; see also `check_text`.
    """
    text, words = folder / "text", folder / "words"
    text.mkdir()
    with waiting("checking the text"):
        lines = check_text(inputs, treatment.cleans)
    files, sides = inputs.pairs, {side: TextSide() for side in SIDES}
    if treatment.changes_text:
        words.mkdir()
        counts = tokenize(inputs, treatment, lines, words, text)
        if prepared is None:
            sides = learn(treatment, counts, words, lines["train"], folder)
            save_tokenization(folder, sides)
        else:
            sides = load_tokenization(prepared)
        files = {split: (words / f"{split}.src", words / f"{split}.tgt") for split in inputs.pairs}
    workers = workers_for(lines) if treatment.subwords != "words" else 1
    vocabulary = None if prepared is None else Vocabulary.of(prepared)
    segmenter = Segmenter(treatment, sides, text, workers, vocabulary)
    result = {split: segmenter.write(split, pair, lines[split]) for split, pair in files.items()}
    training = text if prepared is None else prepared / "text"
    evaluated = [split for split in result if split != "train"]
    for split, trained in count_trained(training, text, evaluated).items():
        result[split] = result[split]._replace(trained=trained)
    copy_columns(inputs, text, segmenter.dropped)
    shutil.rmtree(words, ignore_errors=True)
    return result
