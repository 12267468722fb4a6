"""From raw text to the symbols that a model reads, and back.

Two steps each way: `tokenize` splits raw text into words as Moses does, `segment` splits words into
subwords or symbols; `join` and `detokenize` undo them in reverse order. `tokenization.json` in a
prepared folder says how its two sides were made, so that new text can be treated the same way.

The libraries (sacremoses, subword-nmt, sentencepiece) are imported when first used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from sut_data.errors import InputError
from sut_data.files import write_whole
from sut_data.text.splitting import join_symbols, split_symbols

FILE = "tokenization.json"
SIDES = ("src", "tgt")
SUBWORDS = ("words", "symbols", "bpe", "sentencepiece")
_LEARNT = ("bpe", "sentencepiece")  # they have a model file

_BPE_MARK = "@@"  # ends a subword that does not end its word
_SENTENCEPIECE_MARK = "\u2581"  # stands for the space before a word
_MAX_CACHED_WORDS = 50_000  # subword-nmt caches every word it has split, without a limit

# Invisible characters, Moses' "non-printing" ones. The joiners U+200C and U+200D stay:
# they are part of the spelling of Persian and of Indic languages.
_INVISIBLE = dict.fromkeys(
    [
        *(0xAD, 0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF),
        *(*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)),
    ]
)

_OTHER_SPACE = re.compile(r"[^\S\xa0]+")  # all white space but the no-break space


@dataclass(frozen=True)
class TextSide:
    """How the text of one side, source or target, becomes symbols and is made readable again.

    Text is one sentence without a line end. Symbols and tokens are separated by single spaces;
    other white space counts as a space everywhere.

    Args:
        language: code of the language for Moses (`en`, `de`, ...; it treats unknown languages as
            English). None means that the words are taken as they are.
        subwords: "words" (none), "symbols" (words split at every symbol, see `splitting`), "bpe"
            (subword-nmt) or "sentencepiece".
        model: file of BPE codes or sentencepiece model; None for words and symbols.

    Raises:
        InputError: if the three do not fit together, or, on first use, if the file is not a
            readable model of its kind.
    """

    language: str | None = None
    subwords: str = "words"
    model: Path | None = None

    def __post_init__(self) -> None:
        if self.language is not None and not re.fullmatch("[a-z]{2,3}", str(self.language)):
            raise InputError(
                f"The language `{self.language}` is not a code of two or three small letters, "
                "such as en or de."
            )
        if self.subwords not in SUBWORDS:
            raise InputError(
                f"`{self.subwords}` is no kind of subwords; there are {', '.join(SUBWORDS)}."
            )
        if (self.subwords in _LEARNT) != (self.model is not None):
            needs = "takes no model file" if self.model else "needs a model file"
            raise InputError(f"The kind of subwords `{self.subwords}` {needs}.")

    def tokenize(self, raw: str) -> str:
        """Split raw text into words: Moses' punctuation normalisation and tokenisation.

        Characters that XML gives a meaning are escaped (`&apos;`), as Moses does; hyphens are not
        split off, so that BLEU with and without compound splitting can be told apart.
        """
        if self.language is None:
            return " ".join(raw.split())
        normalizer, tokenizer, _ = self._moses
        # Moses has rules of its own for the no-break space, as within numbers.
        words = _OTHER_SPACE.sub(" ", raw).strip()
        text = normalizer.normalize(words.translate(_INVISIBLE))
        return " ".join(tokenizer.tokenize(text))

    def segment(self, tokens: str) -> str:
        """Split words into subwords; `join` gives back the same words.

        Sentencepiece and symbols cannot tell a U+2581 in the text from their own mark for a space.
        """
        if self.subwords == "symbols":
            return split_symbols(tokens)
        if self.subwords == "bpe":
            return " ".join(self._bpe_symbols(tokens.split()))
        if self.subwords == "sentencepiece":
            return " ".join(self._sentencepiece.encode(" ".join(tokens.split()), out_type=str))
        return " ".join(tokens.split())

    def encode(self, raw: str) -> str:
        """Return the symbols of raw text."""
        return self.segment(self.tokenize(raw))

    def join(self, symbols: str) -> str:
        """Join subwords into words."""
        if self.subwords == "symbols":
            return join_symbols(symbols)
        if self.subwords == "bpe":
            joined = (" ".join(symbols.split()) + " ").replace(_BPE_MARK + " ", "")
            return joined.strip()
        if self.subwords == "sentencepiece":
            return " ".join("".join(symbols.split()).replace(_SENTENCEPIECE_MARK, " ").split())
        return " ".join(symbols.split())

    def detokenize(self, tokens: str) -> str:
        """Turn words into readable text as Moses does; not a perfect inverse of `tokenize`."""
        if self.language is None:
            return " ".join(tokens.split())
        _, _, detokenizer = self._moses
        return str(detokenizer.detokenize(tokens.split()))

    def decode(self, symbols: str) -> str:
        """Return the readable text of symbols."""
        return self.detokenize(self.join(symbols))

    @cached_property
    def _moses(self) -> tuple[Any, Any, Any]:
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        tokenizer = MosesTokenizer(self.language)
        # The library builds sets of all letters anew for every word that ends in a full stop.
        letters, small_letters = frozenset(tokenizer.IsAlpha), frozenset(tokenizer.IsLower)
        tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
        tokenizer.islower = lambda text: small_letters.issuperset(text)
        return MosesPunctNormalizer(self.language), tokenizer, MosesDetokenizer(self.language)

    @cached_property
    def _bpe(self) -> Any:
        from subword_nmt.apply_bpe import BPE

        assert self.model is not None
        try:
            with open(self.model, encoding="utf-8", newline="\n") as codes:
                return BPE(codes, separator=_BPE_MARK)
        except (SystemExit, ValueError) as error:  # the library exits at a bad line
            raise InputError(f"{self.model} is not a file of BPE codes.") from error
        except OSError as error:
            raise InputError(f"{self.model} cannot be read: {error.strerror}.") from error

    @cached_property
    def _sentencepiece(self) -> Any:
        from sentencepiece import SentencePieceProcessor

        try:
            return SentencePieceProcessor(model_file=str(self.model))
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"{self.model} cannot be read as a sentencepiece model: check the path, "
                "or prepare the data again."
            ) from error

    def _bpe_symbols(self, words: list[str]) -> list[str]:
        if len(self._bpe.cache) > _MAX_CACHED_WORDS:
            self._bpe.cache.clear()
        symbols = []
        for word in words:
            symbols += self._bpe.segment_tokens([word])
            # A word that itself ends in the mark would be joined to the next one.
            if symbols[-1].endswith(_BPE_MARK):
                symbols[-1:] = [symbols[-1][:-1] + _BPE_MARK, symbols[-1][-1]]
        return symbols


def has_moses_rules(language: str) -> bool:
    """Whether sacremoses knows a language, by its code; it treats all others as English."""
    from sacremoses.corpus import NonbreakingPrefixes

    return language in {*NonbreakingPrefixes().available_langs, "ja", "ko"}


@lru_cache(maxsize=8)
def text_side(language: str | None, subwords: str, model: Path | None) -> TextSide:
    """Return a cached side, which keeps its models loaded, for processes that get many chunks."""
    return TextSide(language, subwords, model)


def save_tokenization(folder: Path, sides: Mapping[str, TextSide]) -> None:
    """Write how the sides `src` and `tgt` were made to `tokenization.json` in a data folder.

    Raises:
        InputError: if a side is missing, or a model file is not in the folder, which could
            then not be moved.
    """
    document = {}
    for name in SIDES:
        if name not in sides:
            raise InputError(f"The tokenisation of `{name}` is missing.")
        side = sides[name]
        model = None
        if side.model is not None:
            try:
                model = side.model.resolve().relative_to(folder.resolve()).as_posix()
            except ValueError:
                raise InputError(f"{side.model} is not in {folder}: copy it there first.") from None
        document[name] = {"language": side.language, "subwords": side.subwords, "model": model}
    write_whole(folder / FILE, json.dumps(document, indent=1) + "\n")


def _stays_inside(path: str) -> bool:
    """Whether a relative path stays inside its folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts


def load_tokenization(folder: Path) -> dict[str, TextSide]:
    """Read how the sides `src` and `tgt` of a data folder were made.

    A folder without `tokenization.json` holds words as they are, on both sides.

    Raises:
        InputError: if the file is damaged, or a model file that it names is absent.
    """
    path = folder / FILE
    if not path.exists():
        return {name: TextSide() for name in SIDES}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        entries = {name: document[name] for name in SIDES}
        read = {
            name: (entry["language"], entry["subwords"], entry["model"])
            for name, entry in entries.items()
        }
        if not all(isinstance(model, (str, type(None))) for _, _, model in read.values()):
            raise ValueError("`model` must be text")
        if any(model is not None and not _stays_inside(model) for _, _, model in read.values()):
            raise ValueError("`model` must be in the folder")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged or was not written by this package: prepare the data again."
        ) from error
    sides = {}
    for name, (language, subwords, model) in read.items():
        file = None if model is None else folder / model
        if file is not None and not file.is_file():
            raise InputError(f"{path} names {model}, which is not there: copy it back.")
        sides[name] = TextSide(language, subwords, file)
    return sides


def load_direction(folder: Path, source_lang: str, target_lang: str) -> tuple[TextSide, TextSide]:
    """Read how a model's source and target were made; it may read `tgt` and write `src`.

    Args:
        folder: a data folder.
        source_lang, target_lang: the model's languages; if they are not named `src` and `tgt`, the
            source is `src`.

    Raises:
        InputError: as `load_tokenization`.
    """
    sides = load_tokenization(folder)
    source, target = SIDES
    return sides.get(source_lang, sides[source]), sides.get(target_lang, sides[target])
