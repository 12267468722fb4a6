"""Sparse Universal Transformers and their relatives as a fairseq plugin.

Importing it registers models, tasks and criterions with fairseq, lets torch read the classes that
fairseq itself writes into checkpoints, and lets fairseq read sentences one by one under numpy 2
(`models.language_model`). Nothing else changes in the process, except in commands: those of fairseq
check each checkpoint before they use it, and ours end with one line after Ctrl-C. `load` and
`from_pretrained` make fairseq check checkpoints in any process: a model may name a second one.
"""

from __future__ import annotations

# ruff: noqa: E402
from sut_fairseq.errors import InputError  # it says how to install sut_data where that is missing

# isort: split
from sut_data.interrupts import end_when_interrupted

end_when_interrupted()  # now: the imports below take seconds
from sut_data.waiting import loading

_loading = loading()  # what is imported below takes seconds

import argparse
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy
import torch

from sut_fairseq._excepthook import is_command, show_input_errors_as_sentences
from sut_fairseq._requirements import unmet_requirement

if TYPE_CHECKING:
    from sut_fairseq.inference import Classification, ExactMatch, Model, Translation, load

__version__ = "0.1.0"
__all__ = ["Classification", "ExactMatch", "InputError", "Model", "Translation", "load"]

if _problem := unmet_requirement():
    _loading.close()
    show_input_errors_as_sentences()
    raise InputError(_problem)


def _allow_checkpoint_classes() -> None:
    """Let `torch.load(weights_only=True)` read what fairseq itself writes into a checkpoint.

    fairseq stores its arguments as an `argparse.Namespace` and, with `--eval-bleu`, counters as
    numpy arrays and scalars. Each class is named here; any other one is still refused.
    """
    build_scalar: Any = numpy.float64(0).__reduce__()[0]
    build_array: Any = numpy.zeros(1).__reduce__()[0]
    dtypes = [type(numpy.dtype(kind)) for kind in ("float64", "float32", "int64", "int32")]
    torch.serialization.add_safe_globals(
        [argparse.Namespace, build_scalar, build_array, numpy.ndarray, numpy.dtype, *dtypes]
    )


_allow_checkpoint_classes()


# Modules of fairseq configure logging for the whole process, down to debug level, unless there is
# a handler already.
_handler = logging.NullHandler()
logging.getLogger().addHandler(_handler)
# One of fairseq's tasks advertises tensorboardX on import; its logging level is restored below.
_advertiser = logging.getLogger("fairseq.tasks.text_to_speech")
_level = _advertiser.level
_advertiser.setLevel(logging.WARNING)

# Importing them runs the decorators that register them; fairseq itself imports only models and
# tasks of a user directory.
from sut_fairseq.checkpoints.reading import guard_fairseq
from sut_fairseq.criterions import (  # noqa: F401
    absolute_error,
    classification,
    cross_entropy_with_auxiliary,
)
from sut_fairseq.models import (  # noqa: F401
    architectures,
    classifier_architectures,
    encoder_classifier,
    language_model,
    recurrent_architectures,
    recurrent_classifier,
    recurrent_translation,
    retrieval_network,
    universal_transformer,
)
from sut_fairseq.tasks import (  # noqa: F401
    classification_as_translation,
    contextual_retrieval,
    gold_attention,
    sequence_classification,
)

_advertiser.setLevel(_level)
logging.getLogger().removeHandler(_handler)
if is_command():
    show_input_errors_as_sentences()
    guard_fairseq()
_loading.close()


def __getattr__(name: str) -> Any:
    """Import what works with trained models on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.inference"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
