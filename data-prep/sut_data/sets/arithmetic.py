"""Simple arithmetic: nested sums and products modulo 10.

`( ( 4 * 7 ) + 2 )` has the target `0`.

Every operation stands in brackets. The depth of an expression is the greatest number of operations
around a digit, 2 in the example. (Csordás et al., 2022. They write of a "number of operations", but
they limit expressions to 50 tokens, which 8 operations cannot exceed and a tree of depth 8 can.)

An argument is an operation with probability 0.2, else a digit; both operations and all digits are
equally likely. The samples have exactly the distribution of such expressions given their depth
and their limited length, and none is rejected: the number of operations is drawn first, then, from
the outside in, how many of them and which depth each argument has.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Generator, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from sut_data.kit.by_depth import Depths, Sizes, add_test_depths, make_parser, make_parts
from sut_data.kit.examples import Example, Parts, prepare

LONGEST = 50  # tokens
MOST_OPERATIONS = (LONGEST - 1) // 4  # each makes a digit 4 tokens longer: `( 3 + 4 )`
OPERATION_PROBABILITY = 0.2
SIZES = Sizes(100_000, 1_000, 1_000, 1_000)
TEST_DEPTHS = (7, 8)
# Expressions up to depth 1 are 10 + 2 * 10 * 10; those of depth 2 have two of them as arguments,
# not both of depth 0.
POPULATIONS = {0: 10, 1: 2 * 10**2, 2: 2 * (210**2 - 10**2)}


class Form(NamedTuple):
    """The form of an expression, decided before it is drawn: its depth and its operations."""

    depth: int
    operations: int


DIGIT = Form(0, 0)


class Choice(NamedTuple):
    """Forms of the two arguments of an operation, and running sums of their probabilities."""

    arguments: list[tuple[Form, Form]]
    sums: list[float]


@cache
def probability(form: Form) -> float:
    """Return the probability that an argument has a form."""
    if form == DIGIT:
        return 1 - OPERATION_PROBABILITY
    sums = choice(form).sums
    return OPERATION_PROBABILITY * sums[-1] if sums else 0.0


@cache
def choice(form: Form) -> Choice:
    """Return the possible arguments of an operation of a form."""
    depths = range(form.depth)
    arguments = [
        (Form(left, operations), Form(right, form.operations - 1 - operations))
        for operations in range(form.operations)
        for left in depths
        for right in depths
        if max(left, right) == form.depth - 1
    ]
    probabilities = {pair: probability(pair[0]) * probability(pair[1]) for pair in arguments}
    possible = [pair for pair in arguments if probabilities[pair]]
    return Choice(possible, list(accumulate(probabilities[pair] for pair in possible)))


def draw_one(form: Form, uniform: Callable[[], float]) -> tuple[str, int]:
    """Draw an expression of a form; returns it and its value."""
    if form == DIGIT:
        digit = int(uniform() * 10)
        return str(digit), digit
    arguments, sums = choice(form)
    left, right = arguments[bisect(sums, uniform() * sums[-1], 0, len(sums) - 1)]
    first, a = draw_one(left, uniform)
    second, b = draw_one(right, uniform)
    if uniform() < 0.5:
        return f"( {first} + {second} )", (a + b) % 10
    return f"( {first} * {second} )", a * b % 10


def draw(depth: int, seed: int) -> Generator[Example, None, None]:
    """Yield random expressions of a depth without end."""
    # Only `random()` gives the same numbers in every version of Python.
    uniform = random.Random(f"{seed} {depth}").random
    forms = [Form(depth, operations) for operations in range(MOST_OPERATIONS + 1)]
    sums = list(accumulate(map(probability, forms)))
    while True:
        form = forms[bisect(sums, uniform() * sums[-1], 0, len(sums) - 1)]
        expression, value = draw_one(form, uniform)
        yield Example(expression, str(value), (str(depth),))


def main(program: str, argv: Sequence[str]) -> None:
    """Generate the expressions and prepare them."""
    parser = make_parser(
        program,
        "Generate simple arithmetic for fairseq: expressions such as `( ( 4 * 7 ) + 2 )` as "
        "sources, their values modulo 10 as targets of one token.",
        SIZES,
        "An argument is an operation with probability 0.2; expressions have at most 50 tokens. "
        "Depth is the largest number of operations around a digit. train has depths 0 to 5, as "
        "equally as so many different samples exist, valid 1 to 5, the additional set valid_deep "
        "6, test 7 and 8; all but train have the column `depth`. The paper (Csordás et al., 2022) "
        "tests on depths 7 and 8 in its tables and text, on 7 in its appendix: for that, "
        "--test-depths 7. The paper has as many samples of depth 0 as of depth 5, so it repeats "
        "them. Here all samples differ: train has all 10 of depth 0, train and valid share all 200 "
        "of depth 1, and the other depths have equally many. The test set does not depend on the "
        "sizes of the other sets.",
    )
    add_test_depths(parser, TEST_DEPTHS)
    args = parser.parse_args(argv)

    def make() -> Parts:
        depths = Depths(range(6), [6], args.test_depths)
        populations = {depth: POPULATIONS.get(depth) for part in depths for depth in part}
        return make_parts(args, depths, populations, lambda depth: draw(depth, args.seed))

    prepare(args, [], make, ["depth"], name="arithmetic", labels=True)
