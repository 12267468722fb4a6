"""The answers of a model, and the options of its search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from torch import Tensor

from sut_fairseq.errors import check


@dataclass(frozen=True)
class Search:
    """How to search, with fairseq's names and defaults.

    Attributes:
        beam: number of hypotheses that are kept.
        lenpen: the score of a hypothesis is divided by its length to the power of this.
        max_len_a, max_len_b: a hypothesis has at most a * source length + b tokens.
        max_tokens: greatest number of source tokens in a batch, padding included.
        batch_size: greatest number of sentences in a batch; 0: any.

    Raises:
        InputError: one of them has an invalid value.
    """

    beam: int = 5
    lenpen: float = 1.0
    max_len_a: float = 0.0
    max_len_b: int = 200
    max_tokens: int = 4096
    batch_size: int = 0

    def __post_init__(self) -> None:
        for name, least in (("beam", 1), ("max_len_b", 1), ("max_tokens", 1), ("batch_size", 0)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        # Within these bounds the scores of sentences of a thousand tokens do not overflow.
        for name, low, high in (("lenpen", -10, 10), ("max_len_a", 0, 1_000_000)):
            value = getattr(self, name)
            number = isinstance(value, Real) and low <= float(value) <= high
            check(number, name, f"a number from {low} to {high:,}", repr(value))
            object.__setattr__(self, name, float(value))  # fairseq's power of two ints overflows


def whole_number(name: str, value: Any, least: int) -> int:
    """Refuse what is no whole number, or is less than the least one that makes sense."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    check(whole and value >= least, name, f"a whole number of at least {least}", repr(value))
    return int(value)


@dataclass(frozen=True)
class Translation:
    """One line and its translation.

    Attributes:
        source: the line.
        text: its translation; empty for a blank line, or if there is an `error`.
        score: as fairseq-generate prints it: log-probability to base 2, divided by length^lenpen,
            but for a classifier's label not divided.
        depth: the average number of steps per token, for "encoder" and "decoder"; empty if nothing
            halts, or if costs were not requested.
        macs: multiply-accumulates of running the model once on the line and its translation,
            attention products included (a beam search computes `beam` hypotheses instead); None
            if costs were not requested, or if layers cannot be counted.
        alpha_threshold: the halting threshold; None if nothing halts by a threshold.
        error: why there is no translation; None if there is one.
        unknown_words: those of the source (or its subwords) that the model does not know.
        source_tokens, target_tokens: both with the end of the sentence, on the CPU.
    """

    source: str
    text: str = ""
    score: float | None = None
    depth: Mapping[str, float] = field(default_factory=dict)
    macs: int | None = None
    alpha_threshold: float | None = None
    error: str | None = None
    unknown_words: tuple[str, ...] = ()
    source_tokens: Tensor | None = field(default=None, repr=False, compare=False)
    target_tokens: Tensor | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Classification:
    """One line and its class.

    Attributes:
        source: the line.
        label: the most probable class.
        probabilities: of all classes, the most probable first.
    """

    source: str
    label: str
    probabilities: Mapping[str, float]


@dataclass(frozen=True)
class ExactMatch:
    """How many answers equal their references.

    Attributes:
        percent: share of right answers, in per cent.
        right: for each source, whether its answer is right.
        answers: the answers of the model.
    """

    percent: float
    right: tuple[bool, ...]
    answers: tuple[str, ...]
