"""Learn subwords from counted words (BPE) or from a sample of sentences (sentencepiece)."""

from __future__ import annotations

import io
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Iterable

from text_files import InputError

# Beyond these the memory of the learners would grow and the subwords hardly change.
BPE_WORDS = 500_000  # different words, the most frequent ones
SENTENCEPIECE_SENTENCES = 500_000
COUNTED_WORDS = 4_000_000  # different words that are counted at a time


def count_words(counts: Counter[str], more: Counter[str]) -> None:
    """Add word counts to `counts`; where these become too many, forget the words seen once."""
    counts.update(more)
    if len(counts) > COUNTED_WORDS:
        for word in [word for word, count in counts.items() if count == 1]:
            del counts[word]


def learn_bpe(counts: Counter[str], merges: int, path: Path) -> None:
    """Learn BPE codes from word counts and write them to `path`.

    Args:
        counts: the words of the training text.
        merges: how many merges at most; learning stops where no pair of symbols occurs twice.
        path: file to write.

    Raises:
        InputError: if there is nothing to merge.
    """
    from subword_nmt import learn_bpe as subword_nmt
    from tqdm import tqdm

    # Its own progress bar would fill a log file.
    subword_nmt.tqdm = partial(tqdm, desc="learning BPE", disable=None, leave=False)
    # In an order of their own, so that equal counts give the same codes on every run.
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:BPE_WORDS]
    codes = io.StringIO()
    if any(len(word) > 1 for word, _ in words):
        lines = (f"{word} {count}" for word, count in words)
        subword_nmt.learn_bpe(lines, codes, merges, is_dict=True)
    if codes.getvalue().count("\n") < 2:
        raise InputError(
            "--bpe finds no two letters that follow each other twice: train on more text, or leave "
            "--bpe out."
        )
    path.write_text(codes.getvalue(), encoding="utf-8", newline="\n")


def learn_sentencepiece(sentences: Iterable[str], size: int, path: Path, threads: int) -> None:
    """Learn a sentencepiece (unigram) model and write it to `path`.

    The text is taken as it is, without Unicode normalisation, so that decoding gives it back.

    Args:
        sentences: a sample of the training text.
        size: entries of the vocabulary at most.
        path: file to write.
        threads: how many to use.

    Raises:
        InputError: if the size does not suit the text.
    """
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            num_threads=threads,
            minloglevel=1,
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split()) or "no reason given"
        raise InputError(f"--sentencepiece {size} does not suit this text: {reason}.") from error
    path.write_bytes(model.getvalue())
