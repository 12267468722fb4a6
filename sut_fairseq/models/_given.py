"""From what fairseq gives for a model's options to a configuration with all of them, checked."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any, TypeVar, get_args

from fairseq.dataclass import FairseqDataclass

from sut_fairseq.errors import check
from sut_fairseq.models._config import UniversalTransformerConfig

logger = logging.getLogger(__name__)

# How the options that are sizes end; `attention_positions` is none.
_SIZES = ("_dim", "_size", "source_positions", "target_positions")
Options = TypeVar("Options", bound=FairseqDataclass)


def complete(kind: type[Options], given: Any) -> Options:
    """All options of a kind of model; one that is newer than a checkpoint takes its default.

    Args:
        kind: the model's configuration.
        given: what fairseq has made of a command line or a checkpoint.

    Raises:
        InputError: if a value has another type than its option, or if a size or a dropout,
            whichever it is, is out of range.
    """
    config = kind()
    for option in fields(kind):
        name = option.name
        value = getattr(given, name, getattr(config, name))
        if value is not None:
            _check_type(name, {option.type, *get_args(option.type)}, value)
            if name.endswith(_SIZES):
                check(value >= 1, name, "at least 1", value)
            elif name.endswith("dropout"):
                check(0 <= value < 1, name, "at least 0 and less than 1", value)
        setattr(config, name, value)
    return config


def _check_type(name: str, types: set[Any], value: object) -> None:
    """fairseq checks no types in --model-overrides: '0.8', 2.0 and 'False' arrive there."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if bool in types:
        check(isinstance(value, bool), name, "True or False", repr(value))
    elif int in types:
        check(number and isinstance(value, int), name, "a whole number", repr(value))
    elif float in types:
        check(number, name, "a number", repr(value))


def warn_of_unused(config: UniversalTransformerConfig, side: str, kind: str) -> None:
    """Log which options of a side that the model does not have are set in vain.

    They are not refused: checkpoints with such options still load.

    Args:
        config: all options.
        side: "encoder" or "decoder", which the model does not have.
        kind: what the model is, for the log.
    """
    usual, other = type(config)(), {"encoder": "decoder", "decoder": "encoder"}[side]
    for name in ("block", "layers", "normalize_before", "halting"):
        value = getattr(config, f"{side}_{name}")
        if str(value) != str(getattr(usual, f"{side}_{name}")):
            logger.warning(
                "%s_%s %s means nothing for a %s: what counts is %s_%s, %s",
                *(side, name, value, kind, other, name, getattr(config, f"{other}_{name}")),
            )
