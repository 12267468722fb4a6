"""Turns contents of YAML files into dataclasses; what does not fit is refused with its place."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from sut_fairseq.errors import InputError

T = TypeVar("T")

_type_hints = cache(get_type_hints)  # it evaluates all annotations again on each call

_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


@dataclass(frozen=True)
class Place:
    """A place in a file: the file, and the keys that lead there."""

    file: Path
    lines: Mapping[tuple[str, ...], int]
    keys: tuple[str, ...] = ()

    def __truediv__(self, key: object) -> Place:
        return Place(self.file, self.lines, (*self.keys, str(key)))

    def __str__(self) -> str:
        line = self.lines.get(self.keys)
        at = f"{self.file}, line {line}" if line else str(self.file)
        return f"{at}: {'.'.join(self.keys)}" if self.keys else at


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean ...?)`, or nothing where no known name is like it."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean `{close[0]}`?)" if close else ""


def read_yaml(path: Path) -> tuple[Any, Place]:
    """The contents of a YAML file, and its place.

    Raises:
        InputError: if it cannot be read, is not YAML, or has a key twice.
    """
    try:
        found, lines = _parse(path, path.read_text(encoding="utf-8"))
        content = copy.deepcopy(found)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}.") from None
    except InputError:
        raise
    # PyYAML raises a ValueError for a date that there is not, say.
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be read as a YAML file: {reason}.") from error
    except RecursionError:
        raise InputError(
            f"{path} is nested too deeply, or an anchor (&) stands for a value that holds it."
        ) from None
    return content, Place(path, lines)


@cache  # many experiments extend the same files
def _parse(path: Path, text: str) -> tuple[Any, dict[tuple[str, ...], int]]:
    """The contents of a file with this text, and the lines of its keys."""
    lines: dict[tuple[str, ...], int] = {}
    # Not libyaml's parser, though ten times as fast: deep nesting crashes it without a message.
    loader = yaml.SafeLoader(text)
    node = loader.get_single_node()
    _find_lines(node, (), path, lines)  # first: the next line resolves merge keys (<<)
    return None if node is None else loader.construct_document(node), lines


def _find_lines(
    node: yaml.Node | None, keys: tuple[str, ...], path: Path, lines: dict[tuple[str, ...], int]
) -> None:
    """Fill in the line of every key, counted from 1."""
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            _find_lines(child, (*keys, str(number)), path, lines)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, child in node.value:
        name = (*keys, str(key.value))
        line = key.start_mark.line + 1
        if name in lines:
            raise InputError(
                f"{path}, line {line}: the key `{key.value}` is there twice (first in line "
                f"{lines[name]}): leave one of them out."
            )
        lines[name] = line
        _find_lines(child, name, path, lines)


def build(kind: type[T], value: Any, place: Place) -> T:
    """Build an object of a type from the contents of a file.

    Args:
        kind: a dataclass whose fields have types that this function knows: dataclasses, `str`,
            `int`, `float`, `bool`, `list[...]`, `dict[str, ...]`, and unions of those.
        value: the parsed YAML.
        place: of the value.

    Raises:
        InputError: for an unknown key, a key that is missing, or a value of another type.
    """
    result: T = _convert(kind, value, place)
    return result


def _convert(kind: Any, value: Any, place: Place) -> Any:
    kinds = get_args(kind) if get_origin(kind) is types.UnionType else (kind,)
    kind = next((one for one in kinds if _fits(one, value)), None)
    if kind is None:
        allowed = ", ".join(_NAMES[_plain(one)] for one in kinds if one is not types.NoneType)
        raise InputError(f"{place} must be {allowed}, but is {value!r} instead.")
    plain = _plain(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, place)
    if plain is dict:
        return {
            _key(key, place / key): _convert(get_args(kind)[1], item, place / key)
            for key, item in value.items()
        }
    if plain is list:
        # A single text stands for a list of one item.
        values = [value] if isinstance(value, str) else value
        return [_convert(get_args(kind)[0], item, place / n) for n, item in enumerate(values)]
    if plain is float:
        return float(value)
    return value.strip() if plain is str else value


def _plain(kind: Any) -> Any:
    """The type that YAML's parser returns for a type."""
    return dict if dataclasses.is_dataclass(kind) else get_origin(kind) or kind


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value can become one of a type, whatever is inside it."""
    plain = _plain(kind)
    if isinstance(value, bool):  # Python counts it as a whole number
        return plain is bool
    if isinstance(value, float) and math.isnan(value):  # unlike itself, so no two runs were alike
        return False
    return isinstance(value, {float: (float, int), list: (list, str)}.get(plain, plain))


def _dataclass(kind: Any, value: Any, place: Place) -> Any:
    fields = {one.name: one for one in dataclasses.fields(kind)}
    for key in value:
        if key not in fields:
            raise InputError(
                f"{place / key} is an unknown key{nearest(str(key), fields)}; there are "
                f"{', '.join(fields)}."
            )
    for name, one in fields.items():
        required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if required and name not in value:
            raise InputError(f"{place} needs the key `{name}`.")
    hints = _type_hints(kind)
    return kind(**{key: _convert(hints[key], item, place / key) for key, item in value.items()})


def _key(key: Any, place: Place) -> str:
    if isinstance(key, bool) or not isinstance(key, (str, int, float)):
        raise InputError(f"{place}: YAML reads this key as {key!r}; put it into quotes.")
    return str(key)
