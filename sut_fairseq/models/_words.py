"""Which tokens of a source sentence a recurrent model reads."""

from __future__ import annotations

from fairseq.data import Dictionary

from sut_fairseq.errors import InputError
from sut_fairseq.modules.words import Words


def unread(dictionary: Dictionary, *, boundary_tokens: bool) -> tuple[int, ...]:
    """The tokens to skip: padding and, without `boundary_tokens`, begin and end tokens."""
    ends = () if boundary_tokens else (dictionary.bos(), dictionary.eos())
    return (dictionary.pad(), *ends)


def check_words(words: Words, model: str) -> None:
    """Raise an `InputError` if a sentence has nothing to read."""
    if not words.lengths.min():
        raise InputError(
            f"a source sentence has no words, which {model} reads alone: take empty lines out of "
            "the data, or train with --boundary-tokens."
        )
