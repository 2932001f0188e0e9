# SPDX-License-Identifier: GPL-2.0
"""Numbers of what parts gave, by paths, and formulas of them.

A path is PART:STEP/STEP/...: a step is the name of a member, or [KEY=VALUE,...] for the first
element of a list whose members have these values. With |N at its end the number is N where its
last step alone is not there. A formula has paths in braces, numbers,
+ - * /, comparisons, `and`, and min() and max().
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping

PATH = re.compile(r"\{([^{}]+)\}")
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
}  # fmt: skip
FUNCTIONS = {"min": min, "max": max}

Data = Mapping[str, object]
"""What each part gave, by its name."""


class Missing(Exception):
    """A number has not been measured; the text is its path."""


def matches(row: Mapping, where: Mapping[str, str]) -> bool:
    return all(key in row and str(row[key]) == value for key, value in where.items())


def conditions(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def look_up(data: Data, path: str, default: int | None = None):
    """What is at a path; @default if its last step is no member of what is above it."""
    part, _, rest = path.partition(":")
    if part not in data:
        raise Missing(path)
    value = data[part]
    steps = rest.split("/") if rest else []
    for n, step in enumerate(steps, 1):
        if step.startswith("["):
            where = conditions(step[1:-1])
            found = [row for row in value if matches(row, where)] if isinstance(value, list) else []
            if not found:
                raise Missing(path)
            value = found[0]
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, Mapping) and default is not None and n == len(steps):
            value = default
        else:
            raise Missing(path)
    if value is None:
        raise Missing(path)
    return value


def number(data: Data, path: str) -> float:
    name, _, default = path.partition("|")
    value = look_up(data, name, int(default) if default else None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Missing(path)
    return value


def _evaluated(node: ast.AST, names: Mapping[str, float]):
    match node:
        case ast.Expression():
            return _evaluated(node.body, names)
        case ast.Constant(value=int() | float()):
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.UnaryOp(op=ast.USub()):
            return -_evaluated(node.operand, names)
        case ast.BinOp():
            left, right = _evaluated(node.left, names), _evaluated(node.right, names)
            if isinstance(node.op, ast.Div) and right == 0:
                return math.inf if left > 0 else math.nan
            return OPERATORS[type(node.op)](left, right)
        case ast.BoolOp(op=ast.And()):
            return all(_evaluated(value, names) for value in node.values)
        case ast.Compare():
            sides = [_evaluated(one, names) for one in (node.left, *node.comparators)]
            return all(OPERATORS[type(op)](*sides[n : n + 2]) for n, op in enumerate(node.ops))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](_evaluated(one, names) for one in node.args)
    raise ValueError(f"no formula: {ast.unparse(node)}")


def paths(formula: str) -> list[str]:
    return PATH.findall(formula)


def formula(data: Data, text: str):
    """The value of a formula; Missing for the first number that is not there."""
    names = {f"value{n}": number(data, path) for n, path in enumerate(paths(text))}
    counter = iter(range(len(names)))
    tree = ast.parse(PATH.sub(lambda _: f" value{next(counter)} ", text).strip(), mode="eval")
    return _evaluated(tree, names)


def shown(value: float) -> str:
    """For readers: four digits, and no fractions of large numbers."""
    if math.isinf(value) or math.isnan(value):
        return "without bound" if value > 0 else "undefined"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def sides(data: Data, text: str) -> str:
    """A comparison with its sides as numbers: "12 > 1.5 * 4" is "12 > 6"."""
    parts = []
    for clause in text.split(" and "):
        words = re.split(r"\s(<=|>=|<|>)\s", clause)
        parts.append(" ".join(word if n % 2 else shown(formula(data, word)) for n, word in enumerate(words)))
    return ", ".join(parts)
