"""The package's own tokenisation, loaded without the package, which would import torch."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sut_fairseq.tokenization import TextSide, TokenizationError, save_tokenization

NAME = "sut_fairseq_tokenization"
FILE = Path(__file__).resolve().parents[2] / "sut_fairseq" / "tokenization.py"


def _load() -> Any:
    specification = importlib.util.spec_from_file_location(NAME, FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[NAME] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    _module = _load()
    TextSide = _module.TextSide
    TokenizationError = _module.TokenizationError
    save_tokenization = _module.save_tokenization

__all__ = ["TextSide", "TokenizationError", "save_tokenization", "text_side"]


@lru_cache(maxsize=8)
def text_side(language: str | None, subwords: str, model: Path | None) -> TextSide:
    """Return a side that keeps what it has loaded, for processes that get many chunks of text."""
    return TextSide(language, subwords, model)
