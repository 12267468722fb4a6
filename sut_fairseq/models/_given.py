"""Turns the model options that fairseq passes into a complete, checked configuration."""

from __future__ import annotations

import argparse
import ast
import logging
import sys
from collections.abc import Iterable
from dataclasses import Field, fields, is_dataclass
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeVar, get_args

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.utils import split_paths

from sut_fairseq._excepthook import is_command, is_hydra, is_training
from sut_fairseq.errors import InputError, check
from sut_fairseq.models._config import UniversalTransformerConfig

logger = logging.getLogger(__name__)

# Endings of the options that are sizes; `attention_positions` is not one.
_SIZES = ("_dim", "_size", "source_positions", "target_positions")
_NEAR = 0.7  # `threshold` is nearly `alpha_threshold`
Options = TypeVar("Options", bound=FairseqDataclass)


class _Watched:
    """Options of a model that know which of them have been read."""

    def __getattribute__(self, name: str) -> Any:
        object.__getattribute__(self, "__dict__").setdefault("_read", set()).add(name)
        return object.__getattribute__(self, name)


def complete(kind: type[Options], given: Any) -> Options:
    """All options of a kind of model; those newer than a checkpoint take their defaults.

    The result also knows what is read of it, for `warn_of_unread`.

    Args:
        kind: the model's configuration.
        given: the options that fairseq has read from a command line or a checkpoint.

    Raises:
        InputError: if a value is not of its option's type, or if any size or dropout is out of
            range, or if a command of fairseq was given a misspelt option in `--model-overrides`.
    """
    defaults, values = kind(), {}
    _refuse_misspelt(option.name for option in fields(kind))
    for option in fields(kind):
        name = option.name
        value = getattr(given, name, getattr(defaults, name))
        types = {option.type, *get_args(option.type)}
        if value is not None or type(None) not in types:
            _check_type(name, types, value)
        if value is not None:
            if name.endswith(_SIZES):
                check(value >= 1, name, "at least 1", value)
            elif name.endswith("dropout"):
                check(0 <= value < 1, name, "at least 0 and less than 1", value)
            elif name == "alpha_threshold":
                check(0 < value <= 1, name, "greater than 0, at most 1", value)
            elif name == "halting_epsilon":
                check(0 < value < 1, name, "greater than 0, less than 1", value)
        values[name] = value
    watched: type[Options] = type(kind.__name__, (_Watched, kind), {})
    return watched(**values)


def warn_of_unread(config: FairseqDataclass) -> None:
    """Warn of options that a command gives and that nothing has read while the model was built.

    They are not refused, so that a command may change the kinds of a preset or an experiment.

    Args:
        config: what `complete` returned.
    """
    options = vars(config)
    read = options["_read"]
    for option in fields(config):
        # A default such as ${task.tokens_per_sample} is that of a task's option of the same name.
        # Embeddings may be separate already, and `_name` is the model's.
        spared = str(option.default).startswith("${")
        spared |= option.name in ("separate_embeddings", "_name", *read)
        if not spared and _is_given(option, options[option.name]):
            flag = f"--{option.name.replace('_', '-')}"
            logger.warning("%s has no effect on this model with its other options", flag)


def _is_given(option: Field[Any], value: object) -> bool:
    """Whether a command of fairseq was given an option, beyond what an architecture sets."""
    if is_hydra():  # it has no architectures
        return value != option.default
    flags = {word.partition("=")[0] for word in sys.argv[1:]} if is_training() else {}
    return f"--{option.name.replace('_', '-')}" in flags or option.name in _overrides()


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

    An override may also be for the task, fairseq itself, or, where the command loads an ensemble,
    another model of it. Any name that none of these has is warned of, since fairseq's oldest models
    list their options nowhere.
    """
    given = _overrides()
    if not given:
        return
    ours = [*options]
    others = options_of_command()
    # The Transformer is registered without its options.
    of_models = _options_of([*MODEL_DATACLASS_REGISTRY.values(), TransformerConfig])
    several = _loads_several_models()
    for name in given:
        if name in ours or name in others or (several and name in of_models):
            continue
        near = get_close_matches(name, ours, n=1, cutoff=_NEAR)
        near = near or [option for option in ours if name in option.split("_")]
        if near:
            meant = " or ".join(f"`{option}`" for option in near)
            raise InputError(
                f"--model-overrides: there is no option `{name}` (did you mean {meant}?)."
            )
        if name not in of_models:
            logger.warning(
                "--model-overrides: no option `%s` is known; it may have no effect", name
            )


def options_of_command() -> set[str]:
    """Names of the options that a command of fairseq may have besides those of a model."""
    parts = (registry["dataclass_registry"].values() for registry in REGISTRIES.values())
    return _options_of(
        [*vars(FairseqConfig()).values(), *TASK_DATACLASS_REGISTRY.values(), *chain(*parts)]
    )


def _overrides() -> list[str]:
    """Names of the options in this command's `--model-overrides`."""
    if not is_command():
        return []
    try:
        given = ast.literal_eval(_argument("--model-overrides", default="{}"))
    except (SyntaxError, ValueError):  # fairseq says so
        return []
    return [*map(str, given)]


def _loads_several_models() -> bool:
    """Whether this command loads an ensemble."""
    return len(split_paths(_argument("--path", default=""))) > 1


def _argument(flag: str, default: str) -> str:
    """What this command was given for an option."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(flag, default=default, dest="value")
    value: str = parser.parse_known_args(sys.argv[1:])[0].value
    return value


def _options_of(groups: Iterable[Any]) -> set[str]:
    """Names of the options in these groups, of which some are no dataclasses.

    Those of a group within a group begin with its name, as in `encoder_layers_to_keep`.
    """
    found = set()
    for option in chain(*(fields(group) for group in groups if is_dataclass(group))):
        inner = fields(option.type) if is_dataclass(option.type) else ()
        found |= {option.name, *(f"{option.name}_{one.name}" for one in inner)}
    return found


def log_depth(config: UniversalTransformerConfig, *sides: str, **others: object) -> None:
    """Show what took effect: fairseq ignores an unknown key in --model-overrides."""
    options = vars(config)  # so that showing an option does not count as reading it
    shown = {
        title: ", ".join(f"{side} {options[f'{side}_{option}']}" for side in sides)
        for title, option in (("steps", "layers"), ("halting", "halting"))
    }
    shown |= {name: options[name] for name in ("halting_epsilon", "alpha_threshold")}
    logger.info("; ".join(f"{name}: {value}" for name, value in {**shown, **others}.items()))
