# SPDX-License-Identifier: Apache-2.0
"""The small changes that are made to a module, one at a time: operators, numbers, conditions.

Texts, annotations, decorators and assertions stay as they are.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Mutant", "mutants"]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
#: Functions and methods that take the same arguments: each becomes the other one.
_PAIRS = (
    ("min", "max"),
    ("all", "any"),
    ("bisect_left", "bisect_right"),
    ("nsmallest", "nlargest"),
    ("floor", "ceil"),
    ("startswith", "endswith"),
    ("partition", "rpartition"),
    ("removeprefix", "removesuffix"),
    ("lstrip", "rstrip"),
)
_OTHER_FUNCTION = {a: b for one, other in _PAIRS for a, b in ((one, other), (other, one))}
#: A name that the module may not have imported is reached through its own module.
_MODULES = {"bisect_left": "bisect", "bisect_right": "bisect"}

#: What is not looked into: it decides nothing when the program runs.
_FIELDS_LEFT_OUT = {"annotation", "returns", "decorator_list", "format_spec", "type_params"}
_ARGUMENTS_LEFT_OUT = {"strict", "slots", "frozen", "kw_only", "repr", "stacklevel"}


@dataclass(frozen=True)
class Mutant:
    """One change to one module."""

    path: Path
    line: int
    function: int
    """The line where the function around it begins, decorators included; 0: in none."""
    change: str
    """The code before and after."""
    tree: ast.Module
    _apply: Callable[[], None]

    def code(self) -> Any:
        """The changed module, compiled. The tree is changed for good: call it in a fork."""
        self._apply()
        return compile(ast.fix_missing_locations(self.tree), str(self.path), "exec")


def mutants(path: Path) -> list[Mutant]:
    """All changes to a module, in the order of its text."""
    tree = ast.parse(path.read_text())
    return [
        Mutant(path, old.lineno, function, f"{_text(old)}  →  {_text(new)}", tree, apply)
        for old, new, function, apply in _changes(tree, 0)
    ]


_Change = tuple[Any, ast.AST, int, Callable[[], None]]


def _changes(node: ast.AST, function: int) -> Iterator[_Change]:
    """Old and new code, the function's line, and what puts the new code in the old one's place."""
    if isinstance(node, ast.If) and _text(node.test) == "TYPE_CHECKING":
        return
    for name, value in ast.iter_fields(node):
        if name in _FIELDS_LEFT_OUT:
            continue
        body = name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        inner = _first_line(node) if body else function
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _is_left_out(child):
                continue
            place = (value, index) if isinstance(value, list) else (node, name)
            for new in (*_instead(child), *_negated(node, name, child)):
                yield child, new, inner, _putting(place, ast.copy_location(new, child))
            yield from _changes(child, inner)


def _first_line(node: Any) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in _ARGUMENTS_LEFT_OUT
    # a text that stands alone is a docstring
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _putting(place: tuple[Any, Any], new: ast.AST) -> Callable[[], None]:
    parent, key = place

    def put() -> None:
        if isinstance(parent, list):
            parent[key] = new
        else:
            setattr(parent, key, new)

    return put


def _negated(parent: ast.AST, name: str, test: ast.AST) -> Iterator[ast.AST]:
    """The opposite of a condition, if no change within it is that already."""
    conditional = isinstance(parent, ast.If | ast.While | ast.IfExp) and name == "test"
    conditional |= isinstance(parent, ast.comprehension) and name == "ifs"
    is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    if (
        conditional
        and not is_not
        and not isinstance(test, ast.Compare)
        and isinstance(test, ast.expr)
    ):
        yield ast.UnaryOp(ast.Not(), test)


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """What is put in the place of a statement or expression."""
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                for other in _COMPARISONS[type(op)]:
                    ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                    yield ast.Compare(node.left, ops, node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp() if not _is_text(node.left) and not _is_text(node.right):
            yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
        case ast.AugAssign():
            yield ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value)
            yield ast.Pass()
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()) if not math.isinf(node.value):
            yield ast.Constant(node.value + 1)
        case ast.Call(func=ast.Name() | ast.Attribute()):
            yield from _other_call(node)
        case ast.Return(value=value) if value is not None and not _is_none_or_truth(value):
            yield ast.Return(ast.Constant(None))
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Raise():
            yield ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            yield ast.If(ast.Constant(False), [ast.Expr(ast.Yield())], [])
        case ast.Continue():
            yield ast.Pass()
        case ast.Break():
            yield ast.Pass()
        case _:
            pass


def _other_call(node: ast.Call) -> Iterator[ast.AST]:
    function: ast.expr
    match node.func:
        case ast.Name(id="sorted") if node.args:
            yield ast.Call(ast.Name("list", ast.Load()), node.args[:1], [])
        case ast.Name(id=name) if name in _OTHER_FUNCTION:
            other = _OTHER_FUNCTION[name]
            module = _MODULES.get(other)
            source = f"__import__({module!r}).{other}" if module else other
            function = ast.parse(source, mode="eval").body
            yield ast.Call(function, node.args, node.keywords)
        case ast.Attribute(attr=name) if name in _OTHER_FUNCTION:
            function = ast.Attribute(node.func.value, _OTHER_FUNCTION[name], ast.Load())
            yield ast.Call(function, node.args, node.keywords)


def _is_none_or_truth(node: ast.AST) -> bool:
    """Whether None in its place changes nothing, or no more than other changes to it."""
    match node:
        case ast.Constant(value=bool() | None) | ast.Compare() | ast.BoolOp():
            return True
        case ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool" | "all" | "any")):
            return True
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes | None)
    )


def _text(node: ast.AST) -> str:
    """The first line of the code."""
    return ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
