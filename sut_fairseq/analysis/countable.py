"""Which models can be counted: those of this package, and some of fairseq's.

fairseq's other models do much work outside the modules that hooks see (convolutions, shared
matrices), and a count without that work would look complete. Of a plugin's module, layers that have
a hook are counted, and what else it multiplies by its own account, `macs(inputs, output)`.
"""

from __future__ import annotations

import logging
from functools import cache

from fairseq.models.lstm import LSTMModel
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from fairseq.models.transformer_align import TransformerAlignModel
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import AdaptiveSoftmax
from torch import nn

from sut_fairseq.errors import InputError
from sut_fairseq.models.recurrent_classifier import RecurrentClassifier
from sut_fairseq.modules.recurrent.dnc import DNC

logger = logging.getLogger(__name__)

# These classes themselves, not their subclasses.
_OF_FAIRSEQ = (
    LSTMModel,
    TransformerAlignModel,
    TransformerLanguageModel,
    TransformerModel,
    TransformerModelBase,
)


def check_kind(kind: type[nn.Module]) -> None:
    """Refuse models of fairseq that cannot be counted; models of other plugins may pass."""
    if kind.__module__.startswith("fairseq.") and kind not in _OF_FAIRSEQ:
        raise not_counted(kind)


def not_counted(kind: type[nn.Module]) -> InputError:
    """The error for a model with layers that no hook here knows."""
    return InputError(
        f"`{kind.__name__}` has layers that are not counted here; `sut-macs` counts "
        "the models of this package and fairseq's Transformer and LSTM, and of a plugin's modules "
        "what their method `macs(inputs, output)` returns."
    )


def counts_itself(module: nn.Module) -> bool:
    """Whether a module says what it multiplies in a forward pass: `macs(inputs, output)`.

    Layers inside of it that have a hook (see `counting`) are left out, because they are counted.
    """
    return callable(getattr(type(module), "macs", None))


def check_model(model: nn.Module) -> None:
    """Refuse a model with parts whose products no hook sees; warn of those that may have some."""
    check_kind(type(model))
    if isinstance(model, RecurrentClassifier) and isinstance(model.reader, DNC):
        raise InputError("a DNC is not counted: its memory has products that no hook here knows.")
    for module in model.modules():
        if isinstance(module, AdaptiveSoftmax):
            raise InputError(
                "an adaptive softmax is not counted: what it computes depends on the words "
                "predicted."
            )
        if getattr(module, "cross_self_attention", False):
            raise InputError(
                "--cross-self-attention is not counted: its self-attention reads the source, too."
            )
        of_plugin = not type(module).__module__.startswith(("torch.", "fairseq.", "sut_fairseq."))
        if of_plugin and not counts_itself(module):
            matrices = [name for name, p in module.named_parameters(recurse=False) if p.dim() > 1]
            if matrices:
                _warn(type(module).__name__, ", ".join(matrices))


@cache  # once for each class, however many sentences are counted
def _warn(kind: str, matrices: str) -> None:
    logger.warning(
        "MACs leave out the products of `%s` with its own parameters (%s): give it a method "
        "`macs(inputs, output)`, or use nn.Linear",
        kind,
        matrices,
    )
