"""Turns the model options that fairseq passes into a complete, checked configuration."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any, TypeVar, get_args

from fairseq.dataclass import FairseqDataclass

from sut_fairseq.errors import check
from sut_fairseq.models._config import UniversalTransformerConfig

logger = logging.getLogger(__name__)

# Endings of the options that are sizes; `attention_positions` is not one.
_SIZES = ("_dim", "_size", "source_positions", "target_positions")
Options = TypeVar("Options", bound=FairseqDataclass)


def complete(kind: type[Options], given: Any) -> Options:
    """All options of a kind of model; those newer than a checkpoint take their defaults.

    Args:
        kind: the model's configuration.
        given: the options that fairseq has read from a command line or a checkpoint.

    Raises:
        InputError: if a value is not of its option's type, or if any size or dropout is out of
            range.
    """
    config = kind()
    for option in fields(kind):
        name = option.name
        value = getattr(given, name, getattr(config, name))
        types = {option.type, *get_args(option.type)}
        if value is not None or type(None) not in types:
            _check_type(name, types, value)
        if value is not None:
            if name.endswith(_SIZES):
                check(value >= 1, name, "at least 1", value)
            elif name.endswith("dropout"):
                check(0 <= value < 1, name, "at least 0 and less than 1", value)
        setattr(config, name, value)
    return config


def _check_type(name: str, types: set[Any], value: object) -> None:
    """Check the type: fairseq lets '0.8', 2.0 and 'False' through in --model-overrides."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if bool in types:
        check(isinstance(value, bool), name, "True or False", repr(value))
    elif int in types:
        check(number and isinstance(value, int), name, "a whole number", repr(value))
    elif float in types:
        check(number, name, "a number", repr(value))


def log_depth(config: UniversalTransformerConfig, *sides: str, **others: object) -> None:
    """Show what took effect: fairseq ignores a misspelt key in --model-overrides."""
    shown = {
        title: ", ".join(f"{side} {getattr(config, f'{side}_{option}')}" for side in sides)
        for title, option in (("steps", "layers"), ("halting", "halting"))
    }
    shown |= {name: getattr(config, name) for name in ("halting_epsilon", "alpha_threshold")}
    logger.info("; ".join(f"{name}: {value}" for name, value in {**shown, **others}.items()))


def warn_of_unused(config: UniversalTransformerConfig, side: str, kind: str) -> None:
    """Warn of options that have no effect because the model does not have their side.

    They are not refused, so that checkpoints with such options still load.

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
