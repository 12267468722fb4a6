"""Turns the model options that fairseq passes into a complete, checked configuration."""

from __future__ import annotations

import argparse
import ast
import logging
import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeVar, get_args

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from sut_fairseq._excepthook import is_command
from sut_fairseq.errors import InputError, check
from sut_fairseq.models._config import UniversalTransformerConfig

logger = logging.getLogger(__name__)

# Endings of the options that are sizes; `attention_positions` is not one.
_SIZES = ("_dim", "_size", "source_positions", "target_positions")
_NEAR = 0.7  # `threshold` is nearly `alpha_threshold`
Options = TypeVar("Options", bound=FairseqDataclass)


def complete(kind: type[Options], given: Any) -> Options:
    """All options of a kind of model; those newer than a checkpoint take their defaults.

    Args:
        kind: the model's configuration.
        given: the options that fairseq has read from a command line or a checkpoint.

    Raises:
        InputError: if a value is not of its option's type, or if any size or dropout is out of
            range, or if a command of fairseq was given a misspelt option in `--model-overrides`.
    """
    config = kind()
    _refuse_misspelt(option.name for option in fields(kind))
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


def _refuse_misspelt(options: Iterable[str]) -> None:
    """Refuse an override whose name is nearly that of a model's option: fairseq ignores it.

    An override may also be for the task, another model of an ensemble, or fairseq itself. Any name
    that none of these has is warned of, since fairseq's oldest models list their options nowhere.
    """
    if not is_command():
        return
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--model-overrides", default="{}")
    try:
        given = ast.literal_eval(parser.parse_known_args(sys.argv[1:])[0].model_overrides)
    except (SyntaxError, ValueError):  # fairseq says so
        return
    ours = [*options]
    parts = (registry["dataclass_registry"].values() for registry in REGISTRIES.values())
    of_command = [
        *vars(FairseqConfig()).values(),
        *TASK_DATACLASS_REGISTRY.values(),
        *chain(*parts),
    ]
    others = _options_of(of_command)
    for name in map(str, given):
        if name in ours or name in others:
            continue
        near = get_close_matches(name, ours, n=1, cutoff=_NEAR)
        near = near or [option for option in ours if name in option.split("_")]
        if near:
            meant = " or ".join(f"`{option}`" for option in near)
            raise InputError(
                f"--model-overrides: there is no option `{name}` (did you mean {meant}?)."
            )
        if name not in _options_of(MODEL_DATACLASS_REGISTRY.values()):
            logger.warning(
                "--model-overrides: no option `%s` is known; it may have no effect", name
            )


def _options_of(groups: Iterable[Any]) -> set[str]:
    """Names of the options in these groups, of which some are no dataclasses."""
    return {option.name for group in groups if is_dataclass(group) for option in fields(group)}


def log_depth(config: UniversalTransformerConfig, *sides: str, **others: object) -> None:
    """Show what took effect: fairseq ignores an unknown key in --model-overrides."""
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
    names = ["block", "layers", "normalize_before", "halting"]
    if side == "decoder":  # without an encoder, its sizes are the decoder's defaults
        names += ["embed_dim", "attention_heads", "ffn_embed_dim"]
    for name in names:
        value = getattr(config, f"{side}_{name}")
        if str(value) != str(getattr(usual, f"{side}_{name}")):
            logger.warning(
                "%s_%s %s means nothing for a %s: what counts is %s_%s, %s",
                *(side, name, value, kind, other, name, getattr(config, f"{other}_{name}")),
            )
    if side == "decoder":
        for name in ("share_all_embeddings", "share_decoder_input_output_embed"):
            if getattr(config, name):
                logger.warning("%s means nothing for a %s: it has one embedding", name, kind)
