"""Registers the models, tasks and criterions with fairseq; importing it takes seconds.

`sut_fairseq` itself imports it, except in commands that may need nothing of it.
"""

from __future__ import annotations

# ruff: noqa: E402
from sut_data.waiting import loading

_loading = loading()

import argparse
import logging
import warnings
from typing import Any

import numpy
import torch

from sut_fairseq._excepthook import is_command


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
with warnings.catch_warnings():
    # fairseq uses torch.jit, of which newer releases of torch warn at every import.
    warnings.filterwarnings("ignore", r".*torch\.jit", FutureWarning)
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
    guard_fairseq()
_loading.close()
