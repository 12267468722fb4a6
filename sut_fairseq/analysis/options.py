"""The options of architectures, criterions and tasks, with their defaults, by group.

fairseq-train prints its `--help` before it reads `--arch`, `--criterion` and `--task`, so their
options are missing there.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Literal

import fairseq
from fairseq import criterions, models, tasks
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from sut_fairseq.errors import InputError

What = Literal["architecture", "criterion", "task"]
WHATS: tuple[What, ...] = ("architecture", "criterion", "task")


@dataclass(frozen=True)
class Option:
    """An option of fairseq-train.

    Attributes:
        flag: as typed; `data`, the folder, has no dashes.
        value: kind of value: a type's name, or empty for a switch.
        choices: the values that are allowed; empty if they cannot be listed.
        default: its default here.
        preset: whether the architecture, rather than the model, sets this default.
        help: what it does.
    """

    flag: str
    value: str
    choices: tuple[str, ...]
    default: Any
    preset: bool
    help: str

    @property
    def shown_default(self) -> str:
        """The default as it would be typed; empty where there is none."""
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return "" if self.default is None else str(self.default)

    @property
    def shown_help(self) -> str:
        """The help, with the choices where it does not name them."""
        named = all(choice in self.help for choice in self.choices)
        return self.help if named else f"{self.help}: {', '.join(self.choices)}"


@dataclass(frozen=True)
class Group:
    """Options that belong together."""

    title: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Described:
    """An architecture, a criterion or a task of fairseq-train.

    Attributes:
        name: the name.
        what: whether it is given with `--arch`, `--criterion` or `--task`.
        model: of an architecture, the model whose defaults it changes.
        about: the first line of its docstring.
        groups: its options.
    """

    name: str
    what: What
    model: str
    about: str
    groups: tuple[Group, ...]

    @property
    def flag(self) -> str:
        """The option of fairseq-train that it is given with."""
        return "--arch" if self.what == "architecture" else f"--{self.what}"


def names() -> dict[str, What]:
    """The names that this package and other plugins register, and what each of them is."""
    registries: dict[What, Mapping[str, type]] = {
        "architecture": models.ARCH_MODEL_REGISTRY,
        "criterion": criterions.CRITERION_REGISTRY,
        "task": tasks.TASK_REGISTRY,
    }
    return {
        name: what
        for what, registry in registries.items()
        for name, one in registry.items()
        if one.__module__.partition(".")[0] != fairseq.__name__
    }


def headings() -> dict[str, list[str]]:
    """The names in lists, each under a heading: architectures by their model, criterions, tasks."""
    listed: dict[str, list[str]] = {}
    for name, what in sorted(names().items(), key=lambda item: (WHATS.index(item[1]), item[0])):
        model = models.ARCH_MODEL_NAME_REGISTRY.get(name)
        heading = f"architectures of the model {model}" if what == "architecture" else f"{what}s"
        listed.setdefault(heading, []).append(name)
    return listed


def describe(name: str) -> Described:
    """All options of the architecture, criterion or task of this name.

    Raises:
        InputError: if no plugin registers this name; the message lists the nearest ones.
    """
    known = names()
    if name not in known:
        near = ", ".join(get_close_matches(name, known, n=3, cutoff=0))
        raise InputError(
            f"there is no architecture, criterion or task `{name}` here; the nearest are {near}."
        )
    what, model, presets = known[name], "", Namespace()
    found: type
    config: type[FairseqDataclass] | None
    if what == "architecture":
        model = models.ARCH_MODEL_NAME_REGISTRY[name]
        found = models.ARCH_MODEL_REGISTRY[name]
        config = models.MODEL_DATACLASS_REGISTRY.get(model)
        models.ARCH_CONFIG_REGISTRY[name](presets)
    elif what == "criterion":
        found = criterions.CRITERION_REGISTRY[name]
        config = criterions.CRITERION_DATACLASS_REGISTRY.get(name)
    else:
        found = tasks.TASK_REGISTRY[name]
        config = tasks.TASK_DATACLASS_REGISTRY.get(name)
    return Described(
        name=name,
        what=what,
        model=model,
        about=_first_line(found.__doc__),
        groups=tuple(_groups(found, config, vars(presets))),
    )


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0]


def _groups(
    found: Any, config: type[FairseqDataclass] | None, presets: Mapping[str, Any]
) -> Iterator[Group]:
    """The options by the class that defines them, the most general class first."""
    parser = argparse.ArgumentParser(add_help=False)
    if config is None:  # fairseq's old style, without a dataclass: it declares its flags itself
        found.add_args(parser)
        if parser._actions:
            options = tuple(_option(action, presets) for action in parser._actions)
            yield Group(f"Options of {found.__name__}", options)
        return
    gen_parser_from_dataclass(parser, config())
    actions = {action.dest: action for action in parser._actions}
    for part in reversed(config.__mro__):
        own = [name for name in part.__dict__.get("__annotations__", {}) if name in actions]
        options = tuple(_option(actions.pop(name), presets) for name in own)
        if options:
            yield Group(_title(part), options)


def _option(action: argparse.Action, presets: Mapping[str, Any]) -> Option:
    default = action.default.value if isinstance(action.default, Enum) else action.default
    preset = action.dest in presets and presets[action.dest] != default
    kind = {int: "N", float: "X"}.get(action.type, "VALUE")  # type: ignore[call-overload]
    return Option(
        flag=action.option_strings[0] if action.option_strings else action.dest,
        value="" if action.nargs == 0 else kind,
        choices=tuple(map(str, action.choices or ())),
        default=presets.get(action.dest, default),
        preset=preset,
        help=action.help or "",
    )


def _title(part: type) -> str:
    """What the options of a class are about: the first line of its docstring."""
    if part.__module__.partition(".")[0] == "fairseq":
        return "fairseq's own options"
    return _first_line(part.__doc__).removesuffix(".")
