"""Compositional table lookup (CTL): functions of symbols, applied one after the other.

There are 8 symbols, written as strings of 3 bits, and 9 random bijections, named by letters. In the
forward direction `101 d a b` stands for b(a(d(101))), in the backward direction `b a d 101` does.
The target is the value. The depth of a sample is its number of functions. (Liska et al., 2018; the
sizes are those of the Neural Data Router, Csordás et al., 2022.)
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

from sut_data.kit.by_depth import Depths, Sizes, make_parser, make_parts
from sut_data.kit.examples import Example, Parts, prepare

SYMBOLS = [f"{number:03b}" for number in range(8)]
FUNCTIONS = "abcdefghi"
SIZES = Sizes(53_704, 1_000, 3_000, 2_000)
DEPTHS = Depths(range(1, 6), range(6, 9), range(9, 11))

Functions = dict[str, dict[str, str]]


def make_functions(seed: int) -> Functions:
    """Return the random bijections of a seed, as tables by name."""
    uniform = random.Random(f"{seed} functions").random
    # Only `random()` gives the same numbers in every version of Python.
    values = (sorted(SYMBOLS, key=lambda symbol: uniform()) for _ in FUNCTIONS)
    return {name: dict(zip(SYMBOLS, row)) for name, row in zip(FUNCTIONS, values)}


def draw(functions: Functions, depth: int, seed: int) -> Generator[Example, None, None]:
    """Yield random samples of a depth in the forward direction without end, all equally likely."""
    uniform = random.Random(f"{seed} {depth}").random
    names = list(functions)
    while True:
        symbol = value = SYMBOLS[int(uniform() * len(SYMBOLS))]
        applied = [names[int(uniform() * len(names))] for _ in range(depth)]
        for name in applied:
            value = functions[name][value]
        yield Example(" ".join([symbol, *applied]), value, (str(depth),))


def in_direction(parts: Parts, direction: str) -> Parts:
    """Return forward samples in the wanted direction, in the same order."""
    if direction == "forward":
        return parts
    return {
        name: [
            example._replace(source=" ".join(reversed(example.source.split()))) for example in part
        ]
        for name, part in parts.items()
    }


def main(program: str, argv: Sequence[str]) -> None:
    """Generate the samples and prepare them."""
    parser = make_parser(
        program,
        "Generate compositional table lookup for fairseq: a symbol and the functions applied to it "
        "as sources (`101 d a b` is b(a(d(101))), backward it is `b a d 101`), the value as a "
        "target of one token.",
        SIZES,
        "There are 8 symbols and 9 random bijections; depth is the number of functions. train has "
        "depths 1 to 5, as equally as so many different samples exist, valid 2 to 5, the "
        "additional set valid_deep 6 to 8, test 9 and 10; all but train have the column `depth`. "
        "All samples differ: train has all 72 of depth 1, depths 2 and 3 are used up (648 and "
        "5,832 exist), and 4 and 5 share the rest. The same seed gives the same functions and, "
        "without --limit, line by line the same samples in both directions. The size of train is "
        "the published one (Csordás et al., 2022); the samples were not published, and the other "
        "sizes are ours: 1,000 of each depth in valid_deep and test.",
    )
    parser.add_argument(
        "--direction", choices=["forward", "backward"], default="forward",
        help="forward (default): the symbol, then the functions in the order of their application; "
        "backward: the reverse",
    )  # fmt: skip
    args = parser.parse_args(argv)

    def make() -> Parts:
        functions = make_functions(args.seed)
        populations = {
            depth: len(SYMBOLS) * len(functions) ** depth for part in DEPTHS for depth in part
        }
        parts = make_parts(
            args, DEPTHS, populations, lambda depth: draw(functions, depth, args.seed)
        )
        return in_direction(parts, args.direction)

    prepare(args, [], make, ["depth"], name="ctl", split=args.direction, labels=True)
