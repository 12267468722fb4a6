"""fairseq models: thin classes around the modules, and the only readers of a config.

`from sut_fairseq.models import UniversalTransformerModel` imports the class on demand: the modules
of this package import each other through it, so it must not import them all first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sut_fairseq.models.encoder_classifier import EncoderClassifier
    from sut_fairseq.models.language_model import UniversalTransformerLanguageModel
    from sut_fairseq.models.recurrent_classifier import RecurrentClassifier
    from sut_fairseq.models.recurrent_translation import RecurrentTranslationModel
    from sut_fairseq.models.retrieval_network import ContextualRetrievalModel
    from sut_fairseq.models.universal_transformer import UniversalTransformerModel

_MODULES = {
    "ContextualRetrievalModel": "retrieval_network",
    "EncoderClassifier": "encoder_classifier",
    "RecurrentClassifier": "recurrent_classifier",
    "RecurrentTranslationModel": "recurrent_translation",
    "UniversalTransformerLanguageModel": "language_model",
    "UniversalTransformerModel": "universal_transformer",
}

__all__ = [
    "ContextualRetrievalModel",
    "EncoderClassifier",
    "RecurrentClassifier",
    "RecurrentTranslationModel",
    "UniversalTransformerLanguageModel",
    "UniversalTransformerModel",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
