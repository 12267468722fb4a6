"""Sparse Universal Transformers and their relatives as a fairseq plugin.

Importing it registers models, tasks and criterions with fairseq, and lets torch read the classes
that fairseq itself writes into checkpoints. Nothing else of the process changes.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import numpy
import torch

from sut_fairseq._excepthook import show_input_errors_as_sentences
from sut_fairseq._requirements import unmet_requirement
from sut_fairseq.errors import InputError

__version__ = "0.1.0"

if _problem := unmet_requirement():
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

# While it is imported, one of fairseq's tasks advertises tensorboardX; its level is put back below.
_advertiser = logging.getLogger("fairseq.tasks.text_to_speech")
_level = _advertiser.level
_advertiser.setLevel(logging.WARNING)

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

_advertiser.setLevel(_level)
