"""ListOps by dependency depth, as the Neural Data Router is tested on (Csordás et al., 2022)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sut_data.command_line import whole_number
from sut_data.kit.by_depth import Depths, Sizes, add_test_depths, make_parser, make_parts
from sut_data.kit.examples import Example, Parts, prepare
from sut_data.sets.listops_dependency.expressions import draw
from sut_data.text.chunks import cores

SIZES = Sizes(1_000_000, 1_000, 1_000, 1_000)
TEST_DEPTHS = (7, 8)


def is_first(example: Example) -> bool:
    """Whether an expression is one to begin with.

    Either all its operators, at least one, have two arguments; or it is a single SM of any number
    of digits.
    """
    shorter = re.sub(r"\d", "0", example.source)
    if re.fullmatch(r"\[SM( 0)+ \]", shorter):
        return True
    number = 1
    while number:
        shorter, number = re.subn(r"\[\w+ 0 0 \]", "0", shorter)
    return shorter == "0" and "[" in example.source


def main(program: str, argv: Sequence[str]) -> None:
    """Generate the expressions and prepare them."""
    parser = make_parser(
        program,
        "Generate ListOps by dependency depth for fairseq: expressions such as "
        "`[MAX 2 9 [MIN 4 7 ] 0 ]` as sources, their values as targets of one token. (ListOps as "
        "in the Long Range Arena, or as published: `listops`.)",
        SIZES,
        "Operators are MIN, MAX, MED (rounded down) and SM (modulo 10), with 2 to 5 arguments; an "
        "argument is an operator with probability 0.3; expressions have at most 50 tokens. "
        "Dependency depth counts only the operators that the value depends on: MIN and MAX select "
        "one argument, MED one or two (of equal ones the shallowest), SM needs all. train has "
        "depths 0 to 5, as equally as so many different samples exist, valid 1 to 5, the "
        "additional set valid_deep 6, test 7 and 8; all but train have the column `depth`. The set "
        "first repeats samples of train to begin training with: those whose operators all have two "
        "arguments, and single SM of any number of digits. The "
        "paper (Csordás et al., 2022) tests on depths 7 and 8 in its tables and text, on 7 in its "
        "appendix: for that, --test-depths 7. All samples differ: train has all 10 of depth 0, and "
        "equally many of the other depths. The test set does not depend on the sizes of the other "
        "sets.",
    )
    add_test_depths(parser, TEST_DEPTHS)
    parser.add_argument(
        "--processes",
        type=whole_number,
        metavar="N",
        help="processes that generate; the result does not depend on it (default: cores)",
    )
    args = parser.parse_args(argv)

    def make() -> Parts:
        depths = Depths(range(6), [6], args.test_depths)
        populations = {depth: None for part in depths for depth in part}
        processes = args.processes or cores()
        return make_parts(
            args,
            depths,
            {**populations, 0: 10},
            lambda depth: draw(depth, args.seed, processes),
        )

    prepare(
        args,
        [],
        make,
        ["depth"],
        name="listops_dependency",
        labels=True,
        subsets={"first": is_first},
    )
