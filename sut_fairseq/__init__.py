"""Sparse Universal Transformers and their relatives as a fairseq plugin."""

from __future__ import annotations

import argparse
import logging
import sys
from types import TracebackType
from typing import Any

import numpy
import torch

from sut_fairseq._allocator import keep_freed_memory
from sut_fairseq._requirements import check_requirements
from sut_fairseq.errors import InputError

__version__ = "0.1.0"


def _show_input_errors_as_sentences() -> None:
    """Let fairseq's commands end in the sentence of an `InputError`, not in a traceback.

    Concerns only what nobody caught, in the process that imports the package; any other exception
    is shown as before.
    """
    show_others = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, InputError):
            sys.stderr.write(f"error: {error}\n")
        else:
            show_others(kind, error, trace)

    sys.excepthook = show


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


_show_input_errors_as_sentences()
check_requirements()
_allow_checkpoint_classes()
keep_freed_memory()

# Importing fairseq's tasks otherwise advertises tensorboardX on every start.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)


# Importing them runs the decorators that register them; fairseq itself imports only models and
# tasks of a user directory.
from sut_fairseq.criterions import classification, cross_entropy_with_auxiliary  # noqa: E402, F401
from sut_fairseq.models import (  # noqa: E402, F401
    architectures,
    classifier_architectures,
    encoder_classifier,
    recurrent_classifier,
    universal_transformer,
)
from sut_fairseq.tasks import (  # noqa: E402, F401
    classification_as_translation,
    sequence_classification,
)
