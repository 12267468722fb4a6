"""Values that depend on the length of a training: ``= updates // 3 + 1``.

A formula begins with `=`. It may use

- `updates`: the option max-update of the training;
- `devices`: how many GPUs compute together, 1 without any;
- `single`: 1 on exactly one GPU, otherwise 0;
- whole numbers, `+ - * //`, `min`, `max`, `ceil(a / b)` and brackets.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from sut_fairseq.errors import InputError

_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def _ceil(value: float) -> float:
    """The value rounded up; infinity, without a limit of updates, stays as it is."""
    return math.ceil(value) if math.isfinite(value) else value


_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max, "ceil": _ceil}


def is_formula(value: object) -> bool:
    """Whether a value of a setting is a formula."""
    return isinstance(value, str) and value.startswith("=")


def evaluate(formula: str, names: Mapping[str, float]) -> int:
    """The value of a formula, a whole number.

    Args:
        formula: with its `=`.
        names: values of `updates` (infinite where a training has no limit), `devices` and `single`.

    Raises:
        InputError: if it is not such a formula, or its value is not a whole number.
    """
    try:
        value = _value(ast.parse(formula[1:].strip(), mode="eval").body, names)
        finite = math.isfinite(value)
    except InputError:
        raise
    except (SyntaxError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(f"`{formula}` is not a formula: {error}.") from error
    except (RecursionError, MemoryError):  # Python's parser raises either
        raise InputError(f"`{formula[:42]}...` is nested too deeply: shorten it.") from None
    if not finite:
        raise InputError(
            f"`{formula}` needs the number of updates: set max-update, or give --updates."
        )
    if value != int(value):
        raise InputError(f"`{formula}` is {value}, not a whole number; round it with // or ceil().")
    return int(value)


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            compute = _OPERATIONS[type(operation)]
            return compute(_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(one, names) for one in arguments))
    raise InputError(
        f"`{ast.unparse(node)}` cannot stand in a formula: use numbers, {', '.join(names)}, "
        f"+ - * // and {', '.join(_FUNCTIONS)}."
    )
