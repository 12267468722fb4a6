"""ListOps expressions: their values, and the random ones of the Long Range Arena.

An expression is a list operator in prefix notation with digits and expressions as its arguments:
`[MAX 2 9 [MIN 4 7 ] 0 ]`. Its value is a digit, its depth the greatest number of operators around
a digit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median
from typing import NamedTuple

from sut_data.errors import InputError
from sut_data.kit.examples import Example
from sut_data.text.chunks import cores, ordered_map

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),  # rounded down between two values
    "[SM": lambda values: sum(values) % 10,
    "[FIRST": lambda values: values[0],
    "[LAST": lambda values: values[-1],
}
END = "]"
DIGITS = {str(digit): digit for digit in range(10)}

# The Long Range Arena (Tay et al., 2021): its operators, the greatest number of arguments, the
# number of levels of operators and digits, and how often an argument is an operator.
LRA_OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
LRA_ARGUMENTS = 10
LRA_LEVELS = 10
LRA_OPERATOR_PROBABILITY = 0.25  # called VALUE_P in its program

ATTEMPTS = 1000  # in a piece of work; about a third are long enough
PATIENCE = 50  # pieces of work without a new expression


def evaluate(expression: str) -> tuple[int, int]:
    """Return the value of an expression and its depth.

    Raises:
        ValueError: if it is not an expression.
    """
    operators: list[str] = []
    arguments: list[list[int]] = [[]]  # of the operators that are open, and the result at the end
    depth = 0
    for word in expression.split():
        if word in DIGITS:
            arguments[-1].append(DIGITS[word])
        elif word in OPERATORS:
            operators.append(word)
            arguments.append([])
            depth = max(depth, len(operators))
        elif word == END and operators and arguments[-1]:
            values = arguments.pop()
            arguments[-1].append(OPERATORS[operators.pop()](values))
        else:
            break
    else:
        if not operators and len(arguments[0]) == 1:
            return arguments[0][0], depth
    raise ValueError(f"`{expression[:60]}` is not a ListOps expression")


class Lengths(NamedTuple):
    """An expression has more words than `shortest` and fewer than `longest`, as in LRA."""

    shortest: int
    longest: int


def draw(uniform: Callable[[], float], longest: int) -> list[str]:
    """Draw an expression as LRA does; one that grows beyond `longest` words is cut off.

    Args:
        uniform: returns random numbers in [0, 1).
        longest: number of words at which to stop.
    """
    words: list[str] = []
    _grow(words, 1, uniform, longest)
    return words


def _grow(words: list[str], level: int, uniform: Callable[[], float], longest: int) -> None:
    """Append an operator on a level (the outermost is 1) with its arguments."""
    words.append(LRA_OPERATORS[int(uniform() * len(LRA_OPERATORS))])
    for _ in range(2 + int(uniform() * (LRA_ARGUMENTS - 1))):
        if len(words) >= longest:
            return
        # The last level has only digits.
        if level + 1 < LRA_LEVELS and uniform() <= LRA_OPERATOR_PROBABILITY:
            _grow(words, level + 1, uniform, longest)
        else:
            words.append(str(int(uniform() * 10)))
    words.append(END)


def draw_many(work: tuple[int, int, Lengths]) -> list[Example]:
    """Draw `ATTEMPTS` expressions and return those of a fitting length, with value and depth.

    Args:
        work: seed, number of this piece of work, and the lengths.
    """
    seed, piece, (shortest, longest) = work
    # Only `random()` gives the same numbers in every version of Python.
    uniform = random.Random(f"{seed} {piece}").random
    examples = []
    for _ in range(ATTEMPTS):
        words = draw(uniform, longest)
        if shortest < len(words) < longest:
            expression = " ".join(words)
            value, depth = evaluate(expression)
            examples.append(Example(expression, str(value), (str(depth),)))
    return examples


def generate(total: int, seed: int, lengths: Lengths, processes: int | None) -> Iterator[Example]:
    """Yield distinct random expressions, the same ones with any number of processes.

    Args:
        total: how many.
        seed: of the random numbers.
        lengths: those that are allowed.
        processes: number of processes; None means one per core.

    Raises:
        InputError: if there seem to be no more expressions of such lengths.
    """
    seen: set[str] = set()
    fruitless = 0
    work = ((seed, piece, lengths) for piece in count())
    for examples in ordered_map(draw_many, work, processes or cores()):
        before = len(seen)
        for example in examples:
            if example.source not in seen and len(seen) < total:
                seen.add(example.source)
                yield example
        if len(seen) == total:
            return
        fruitless = fruitless + 1 if len(seen) == before else 0
        if fruitless == PATIENCE:
            raise InputError(
                f"only {len(seen):,} of {total:,} expressions longer than {lengths.shortest} and "
                f"shorter than {lengths.longest} words were found: allow more lengths or ask for "
                "fewer."
            )
