"""ListOps expressions by dependency depth: how many nested operators their value depends on.

MIN and MAX select one argument, MED the middle one or the middle two, SM needs all. Arguments that
are not selected are left out; the depth of what remains is the dependency depth of the expression
(Csordás et al., 2022). `[MAX 9 [MIN 1 2 ] ]` has 1: its value is known without the MIN. Among equal
arguments the shallowest are selected, for nothing deeper is needed.

A digit has depth 0. The four operators are equally likely, and so are 2 to 5 arguments; an argument
is an operator with probability 0.3, else a digit, and all digits are equally likely.
Expressions of a depth are drawn by rejection: they have exactly the distribution of such
expressions given their depth and their limited length.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Generator
from itertools import accumulate, count, product
from typing import NamedTuple

from sut_data.kit.examples import Example
from sut_data.text.chunks import ordered_map

LONGEST = 50  # words, the closing brackets included
MOST_ARGUMENTS = 5
OPERATOR_PROBABILITY = 0.3
ATTEMPTS = 20_000  # in a piece of work

Argument = tuple[int, int]  # value and dependency depth


def minimum(arguments: list[Argument]) -> Argument:
    """Return the least value and the depth of the argument that has it."""
    return min(arguments)


def maximum(arguments: list[Argument]) -> Argument:
    """Return the greatest value and the depth of the argument that has it."""
    value = max(arguments)[0]
    return min(argument for argument in arguments if argument[0] == value)


def floored_median(arguments: list[Argument]) -> Argument:
    """Return the median, rounded down between two values, and the depth of what it depends on."""
    ordered = sorted(arguments)
    values = [value for value, _ in ordered]
    middle = len(values) // 2
    upper = values[middle]
    lower = upper if len(values) % 2 else values[middle - 1]
    if lower < upper:
        selected = [ordered[values.index(lower)], ordered[middle]]
    else:  # the shallowest of those that have the value: one of them, or two
        first = values.index(upper)
        selected = ordered[first : first + 2 - len(values) % 2]
    return (lower + upper) // 2, max(depth for _, depth in selected)


def sum_modulo_10(arguments: list[Argument]) -> Argument:
    """Return the last digit of the sum and the depth of the deepest argument."""
    return (
        sum(value for value, _ in arguments) % 10,
        max(depth for _, depth in arguments),
    )


OPERATORS: dict[str, Callable[[list[Argument]], Argument]] = {
    "[MIN": minimum,
    "[MAX": maximum,
    "[MED": floored_median,
    "[SM": sum_modulo_10,
}


class Node(NamedTuple):
    """An operator, and for each of its arguments whether that is an operator."""

    operator: str
    arguments: tuple[bool, ...]

    def probability(self) -> float:
        """Return the probability of this operator with such arguments."""
        result = 1 / len(OPERATORS) / (MOST_ARGUMENTS - 1)
        for is_operator in self.arguments:
            result *= OPERATOR_PROBABILITY if is_operator else 1 - OPERATOR_PROBABILITY
        return result


NODES = [
    Node(operator, arguments)
    for operator in OPERATORS
    for size in range(2, MOST_ARGUMENTS + 1)
    for arguments in product((False, True), repeat=size)
]
SUMS = list(accumulate(node.probability() for node in NODES))
# Looked up for every node drawn: the words that it adds, and its arguments that are operators.
GROWTH = [(len(node.arguments) + 1, sum(node.arguments)) for node in NODES]


def draw_nodes(uniform: Callable[[], float], least_levels: int) -> list[int]:
    """Draw the operators of an expression, the outermost first, then those on the next level, ...

    Args:
        uniform: returns random numbers in [0, 1).
        least_levels: the least number of levels wanted.

    Returns:
        indices of `NODES`; none if there are fewer levels, or too many words.
    """
    nodes: list[int] = []
    room = LONGEST - 1
    on_level = 1
    levels = 0
    last = len(NODES) - 1
    while on_level:
        levels += 1
        on_next_level = 0
        for _ in range(on_level):
            node = bisect(SUMS, uniform(), 0, last)
            words, operators = GROWTH[node]
            room -= words
            if room < 0:
                return []
            nodes.append(node)
            on_next_level += operators
        on_level = on_next_level
    return nodes if levels >= least_levels else []


def fill(nodes: list[int], uniform: Callable[[], float]) -> tuple[str, int, int]:
    """Fill in the digits; returns the expression, its value and its dependency depth."""
    # From the last operator to the first: an argument that is an operator is the oldest result not
    # yet used.
    texts: list[str] = []
    results: list[Argument] = []
    used = 0
    for node in reversed(nodes):
        operator, are_operators = NODES[node]
        words = [operator]
        arguments = []
        for is_operator in are_operators:
            if is_operator:
                words.append(texts[used])
                arguments.append(results[used])
                used += 1
            else:
                digit = int(uniform() * 10)
                words.append(str(digit))
                arguments.append((digit, 0))
        value, depth = OPERATORS[operator](arguments)
        texts.append(" ".join(words) + " ]")
        results.append((value, depth + 1))
    return (texts[-1], *results[-1])


def draw_many(work: tuple[int, int, int]) -> list[Example]:
    """Try `ATTEMPTS` times to draw an expression of a depth.

    Args:
        work: seed, dependency depth of at least 1, and number of this piece of work.
    """
    seed, wanted, piece = work
    # Only `random()` gives the same numbers in every version of Python.
    uniform = random.Random(f"{seed} {wanted} {piece}").random
    examples = []
    for _ in range(ATTEMPTS):
        # The depth is at most the number of levels, so with too few no digits are drawn.
        nodes = draw_nodes(uniform, wanted)
        if nodes:
            expression, value, depth = fill(nodes, uniform)
            if depth == wanted:
                examples.append(Example(expression, str(value), (str(depth),)))
    return examples


def draw(depth: int, seed: int, processes: int) -> Generator[Example, None, None]:
    """Yield random expressions of a depth without end, the same with any number of processes."""
    if depth == 0:
        while True:
            yield from (Example(digit, digit, ("0",)) for digit in "0123456789")
    for examples in ordered_map(draw_many, ((seed, depth, n) for n in count()), processes):
        yield from examples
