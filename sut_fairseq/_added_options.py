"""Options that a plugin adds to models and criterions which are registered already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, field, fields, make_dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from hydra.core.config_store import ConfigStore

from sut_fairseq.errors import InputError

Registry = Mapping[str, type[FairseqDataclass]]


def add_options(
    kind: str, registry: Registry, owner: type, new: type, taken: Iterable[str] = ()
) -> None:
    """Add options to a group of options, and with it to all registered classes that contain it.

    The classes themselves change, since fairseq and this package hold them by name: fairseq makes
    flags from a class's fields, hydra's store holds an instance, and omegaconf reads annotations.

    Args:
        kind: what is registered with these classes, "model" or "criterion".
        registry: the classes of options, by name.
        owner: the group, one of these classes or a base of them.
        new: a dataclass of the new options, which have defaults. What the group has already, from
            the same plugin imported twice, stays as it is.
        taken: names that other options of a command have.

    Raises:
        InputError: if a name is taken, or an option lacks what fairseq needs.
    """
    bases = (part for one in registry.values() for part in one.__mro__)
    holders: set[type[Any]] = {part for part in bases if issubclass(part, owner)}
    known = {option.name: option for one in holders for option in fields(one)}
    # fairseq's `_name` is in every class.
    given = [option for option in fields(new) if option.name != "_name"]
    given = [one for one in given if _described(one) != _described(known.get(one.name))]
    for option in given:
        _check(option, {*known, *taken})
        owner.__annotations__[option.name] = option.type
    for config in holders:
        own = [
            (one.name, one.type, field(default=one.default, metadata=one.metadata)) for one in given
        ]
        made = make_dataclass(config.__name__, own, bases=(config,))
        for part in ("__init__", "__eq__", "__repr__", "__dataclass_fields__"):
            setattr(config, part, getattr(made, part))
        for option in given:
            setattr(config, option.name, option.default)
    for name, config in registry.items():
        if issubclass(config, owner):
            node: Any = config()
            node._name = name
            ConfigStore.instance().store(name=name, group=kind, node=node, provider="fairseq")


def _described(option: Field[Any] | None) -> object:
    return option and (option.name, option.type, option.default, dict(option.metadata))


def _check(option: Field[Any], taken: set[str]) -> None:
    if option.name in taken:
        raise InputError(f"there is an option `{option.name}` already: choose another name.")
    if option.default is MISSING:
        raise InputError(f"the option `{option.name}` needs a default, not a factory.")
    if isinstance(option.type, str):
        raise InputError(
            f"the type of the option `{option.name}` is a text, which fairseq cannot read: leave "
            "out `from __future__ import annotations` where it is defined."
        )
