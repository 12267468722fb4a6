"""Learn subwords from counted words (BPE) or from a sample of sentences (sentencepiece)."""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sut_data.errors import InputError

Pair = tuple[str, str]

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
    """Learn BPE codes from word counts and write them to `path` as subword-nmt reads them.

    Args:
        counts: the words of the training text.
        merges: how many merges at most; learning stops where no pair of symbols occurs twice.
        path: file to write.

    Raises:
        InputError: if there is nothing to merge.
    """
    from tqdm import tqdm

    # In a fixed order, so that equal counts give the same codes on every run.
    words = nsmallest(BPE_WORDS, counts.items(), key=lambda item: (-item[1], item[0]))
    found = islice(find_merges(words), merges)
    codes = [
        f"{left} {right}\n"
        for left, right in tqdm(found, "learning BPE", merges, disable=None, leave=False)
    ]
    if not codes:
        raise InputError(
            "--bpe finds no two letters that follow each other twice: train on more text, or leave "
            "--bpe out."
        )
    path.write_text("#version: 0.2\n" + "".join(codes), encoding="utf-8", newline="\n")
    if len(codes) < merges:
        print(
            f"--bpe {merges:,}: the text has only {len(codes):,} merges to learn, so that its "
            "words stay whole and new words have unknown parts: give a smaller number"
        )


class _Reversed(NamedTuple):
    """A pair of symbols that sorts in reverse order."""

    pair: Pair

    def __lt__(self, other: tuple[Pair]) -> bool:  # type: ignore[override]
        return self.pair > other[0]


def find_merges(words: Iterable[tuple[str, int]]) -> Iterator[Pair]:
    """Yield the merges of byte pair encoding (Sennrich et al., 2016), the most frequent pair first.

    They are the merges of subword-nmt, which takes the alphabetically last of equally frequent
    pairs; here the most frequent pair comes from a heap, not from a search through all pairs. On
    one core, from the counted words of both languages, this takes 2.3 s instead of 9.9 s for
    Multi30k (29,390 words, 8,000 merges), and 5.7 s instead of 120.9 s for 10,000 pairs of WMT'14
    (54,882 words, 32,000 merges).

    Args:
        words: different words and how often each occurs.
    """
    counted = list(words)
    spelled = [[*word[:-1], word[-1] + "</w>"] for word, _ in counted]
    counts: dict[Pair, int] = defaultdict(int)
    where: dict[Pair, list[int]] = defaultdict(list)  # words that have, or once had, the pair
    for index, symbols in enumerate(spelled):
        for pair in zip(symbols, symbols[1:]):
            counts[pair] += counted[index][1]
            where[pair].append(index)
    heap = [(-count, _Reversed(pair)) for pair, count in counts.items()]
    heapify(heap)
    while heap:
        count, entry = heappop(heap)
        pair = entry.pair
        if counts[pair] != -count:
            # It has become rarer since; it goes back to the heap with its present count.
            if counts[pair] > 1:
                heappush(heap, (-counts[pair], entry))
            continue
        if counts[pair] < 2:
            return
        yield pair
        grown = set()
        for index in set(where.pop(pair)):
            old, times = spelled[index], counted[index][1]
            new = spelled[index] = _merge(old, pair)
            if len(new) == len(old):
                continue
            for changed in zip(old, old[1:]):
                counts[changed] -= times
            for changed in zip(new, new[1:]):
                counts[changed] += times
                if pair[0] + pair[1] in changed:
                    where[changed].append(index)
                    grown.add(changed)
        for changed in grown:
            heappush(heap, (-counts[changed], _Reversed(changed)))


def _merge(symbols: list[str], pair: Pair) -> list[str]:
    """Join every occurrence of a pair, from left to right."""
    merged: list[str] = []
    start = 0
    while start < len(symbols):
        if symbols[start] == pair[0] and symbols[start + 1 : start + 2] == [pair[1]]:
            merged.append(pair[0] + pair[1])
            start += 2
        else:
            merged.append(symbols[start])
            start += 1
    return merged


# In bytes; sentencepiece skips longer lines. By default it does so from 4,192 on, and a line of a
# million letters takes it hours.
_LONGEST = 16_384


def learn_sentencepiece(sentences: Iterable[str], size: int, path: Path, threads: int) -> None:
    """Learn a sentencepiece (unigram) model and write it to `path`.

    The text is used as it is, without Unicode normalisation, so that decoding restores it. Lines of
    more than 16,384 bytes are left out.

    Args:
        sentences: a sample of the training text.
        size: of the vocabulary, at most.
        path: file to write.
        threads: how many to use.

    Raises:
        InputError: if the size does not suit the text.
    """
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            num_threads=threads,
            max_sentence_length=_LONGEST,
            minloglevel=2,
        )
    except RuntimeError as error:
        characters = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if characters:
            raise InputError(
                f"--sentencepiece {size} is too small for this text, whose different characters "
                f"need an entry each: give at least {characters[1]}."
            ) from error
        reason = " ".join(str(error).split()) or "no reason given"
        raise InputError(f"--sentencepiece {size} does not suit this text: {reason}.") from error
    path.write_bytes(model.getvalue())
    pieces = SentencePieceProcessor(model_proto=model.getvalue()).get_piece_size()
    if pieces < size:
        print(f"--sentencepiece {size:,}: the text has only enough for {pieces:,} pieces")
