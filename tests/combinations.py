"""Tests of several options at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Values = Sequence[Any] | Mapping[str, Any]


def every_pair(**options: Values) -> pytest.MarkDecorator:
    """Run a test with all combinations of the options' values, most of them under `--slow` only.

    By default there are as many as it takes for any two values of different options to meet once:
    what goes wrong takes a certain value of one option or two, hardly ever of three.

    Args:
        options: values of each of the test's arguments, by their names if they have any.
    """
    named = [
        list(values.items() if isinstance(values, Mapping) else ((str(v), v) for v in values))
        for values in options.values()
    ]
    rows = list(product(*(range(len(values)) for values in named)))
    pairs = {row: set(combinations(enumerate(row), 2)) for row in rows}
    left = set().union(*pairs.values())
    kept = set()
    while left:
        best = max(rows, key=lambda row: len(pairs[row] & left))  # the first of equals
        kept.add(best)
        left -= pairs[best]
    cases = []
    for row in rows:
        chosen = [values[index] for values, index in zip(named, row)]
        marks = [] if row in kept else [pytest.mark.slow]
        name = "-".join(name for name, _ in chosen)
        cases.append(pytest.param(*(value for _, value in chosen), id=name, marks=marks))
    return pytest.mark.parametrize(tuple(options), cases)
