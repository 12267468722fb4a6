"""Lines of text as the tokens of a model, and its tokens as text."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sut_data.text.tokenization import TextSide
from sut_fairseq.analysis.sentences import sentence_tokens
from sut_fairseq.inference.results import Translation
from sut_fairseq.tasks.sequence_classification import SequenceClassificationTask

LONGEST = 1 << 16  # characters of a line; no model takes as many words, and Moses is slow on them


@dataclass(frozen=True)
class SharedSide(TextSide):
    """A side that several threads may use: its libraries load and cache things on first use.

    Args:
        lock: held while they work.
    """

    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def of(cls, side: TextSide) -> SharedSide:
        """The same side for several threads."""
        return cls(side.language, side.subwords, side.model)

    def tokenize(self, raw: str) -> str:
        with self.lock:
            return super().tokenize(raw)

    def segment(self, tokens: str) -> str:
        with self.lock:
            return super().segment(tokens)

    def detokenize(self, tokens: str) -> str:
        with self.lock:
            return super().detokenize(tokens)


@dataclass(frozen=True)
class ModelText:
    """Dictionaries and tokenisation of a model; several threads may use it.

    Attributes:
        task: fairseq's task, with both dictionaries.
        source_side, target_side: how text becomes symbols, and symbols text.
        max_source_tokens: the longest source that the model takes, its end included.
    """

    task: Any
    source_side: SharedSide
    target_side: SharedSide
    max_source_tokens: int

    def read(self, line: str) -> Translation:
        """A line with its tokens to translate, if any, or why it cannot be translated."""
        clean = line[:LONGEST].encode(errors="replace").decode()
        if len(line) > LONGEST:
            error = f"the line is longer than {LONGEST:,} characters; split it."
            return Translation(clean, error=error)
        if clean != line:
            error = "the line is not UTF-8; convert it, for example with `iconv -t UTF-8`."
            return Translation(clean, error=error)
        dictionary = self.task.source_dictionary
        symbols = self.source_side.encode(line).split()
        tokens = sentence_tokens(symbols, dictionary)
        length = len(tokens)
        if isinstance(self.task, SequenceClassificationTask):
            length += self.task.BOUNDARY_TOKENS - 1
        if length > self.max_source_tokens:
            error = (
                f"the sentence has {length:,} tokens with its end, but the model takes "
                f"at most {self.max_source_tokens:,}; split it."
            )
            return Translation(line, error=error)
        known = tokens.ne(dictionary.unk()).tolist()
        unknown = (word for word, is_known in zip(symbols, known) if not is_known)
        return Translation(
            line,
            source_tokens=tokens if len(tokens) > 1 else None,
            unknown_words=tuple(unknown),
        )

    def reference(self, line: str) -> list[int]:
        """The tokens of an expected answer; -1, which no answer has, for each unknown word."""
        dictionary = self.task.target_dictionary
        symbols = self.target_side.encode(line).split()
        tokens = sentence_tokens(symbols, dictionary)
        return tokens.masked_fill(tokens == dictionary.unk(), -1).tolist()

    def decode(self, tokens: Tensor, left_out: Iterable[int]) -> str:
        """Text of an answer, without the special symbols `left_out`."""
        symbols: str = self.task.target_dictionary.string(
            tokens.int().cpu(), extra_symbols_to_ignore=left_out
        )
        return self.target_side.decode(symbols)
