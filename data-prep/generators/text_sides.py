"""The package's own tokenisation, loaded without the package, which would import torch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from package_module import load

if TYPE_CHECKING:
    from sut_fairseq.tokenization import TextSide, TokenizationError, save_tokenization

if not TYPE_CHECKING:
    _module = load("tokenization")
    TextSide = _module.TextSide
    TokenizationError = _module.TokenizationError
    save_tokenization = _module.save_tokenization

__all__ = ["TextSide", "TokenizationError", "save_tokenization", "text_side"]


@lru_cache(maxsize=8)
def text_side(language: str | None, subwords: str, model: Path | None) -> TextSide:
    """Return a side that keeps what it has loaded, for processes that get many chunks of text."""
    return TextSide(language, subwords, model)
