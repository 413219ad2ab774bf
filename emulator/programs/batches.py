"""Give a name to lists of calls that stand inside an expression, so that their calls may leave together.

``print([f(1), g(2)])`` becomes ``_batch_1 = [f(1), g(2)]`` and ``print(_batch_1)``: a list that is stored is
one that a run can go past before its results are known (`placeholders.py`). Only a list that a statement
evaluates before anything else of it is taken out, so nothing changes its place.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from emulator.programs.taint import REFLECTION, leaves, makes_a_batch

_BLOCKS = ("body", "orelse", "finalbody")
#: Where the value stands that a statement evaluates first. The test of a while is evaluated more than once.
_FIRST: dict[type[ast.stmt], str] = {
    ast.Expr: "value",
    ast.Assign: "value",
    ast.AnnAssign: "value",
    ast.Return: "value",
    ast.For: "iter",
    ast.If: "test",
    ast.Assert: "test",
}
#: Where the part of an expression stands that is evaluated first.
_INNER: dict[type[ast.expr], str] = {
    ast.Attribute: "value",
    ast.Await: "value",
    ast.Subscript: "value",
    ast.Starred: "value",
    ast.BinOp: "left",
    ast.Compare: "left",
    ast.UnaryOp: "operand",
    ast.IfExp: "test",
    ast.FormattedValue: "value",
}
_LISTS = (ast.ListComp, ast.DictComp)
_DISPLAYS = (ast.List, ast.Tuple, ast.Dict)


def name_batches(tree: ast.Module, tools: Collection[str]) -> None:
    """Change ``tree`` so that lists of calls of ``tools`` are stored where they can be."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if used & REFLECTION:
        return  # it would see the names
    tree.body = _Namer(frozenset(tools), used).block(tree.body)


class _Namer:
    def __init__(self, tools: frozenset[str], used: Collection[str]) -> None:
        self._tools = tools
        self._used = used
        self._count = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        for field in _BLOCKS:
            if inner := getattr(statement, field, None):
                setattr(statement, field, self.block(inner))
        for handler in getattr(statement, "handlers", ()):
            handler.body = self.block(handler.body)
        for case in getattr(statement, "cases", ()):
            case.body = self.block(case.body)
        field = _FIRST.get(type(statement), "")
        value = getattr(statement, field, None) if field else None
        stored = isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign))
        if value is None or (stored and self._is_batch(value)):
            return [statement]
        place = self._place(statement, field)
        if place is None:
            return [statement]
        name = self._name()
        batch = place.take(ast.Name(name, ast.Load()))
        return [
            ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], batch), statement),
            statement,
        ]

    def _place(self, holder: ast.AST, field: str) -> _Place | None:
        """Where the first thing that is evaluated from a field of ``holder`` on is a list of calls."""
        place = _Place(holder, field)
        while True:
            value = place.value
            if self._is_batch(value):
                return place
            match value:
                case ast.Call(func=func, args=args, keywords=keywords):
                    if isinstance(func, ast.Name) and func.id in self._tools:
                        return None
                    if _is_dotted(func):
                        if args:
                            place = _Place(args, 0)
                        elif keywords:
                            place = _Place(keywords[0], "value")
                        else:
                            return None
                    else:
                        place = _Place(value, "func")
                case ast.BoolOp(values=parts) | ast.JoinedStr(values=parts):
                    place = _Place(parts, 0)
                case ast.List(elts=[_, *_] as parts) | ast.Tuple(elts=[_, *_] as parts):
                    place = _Place(parts, 0)
                case ast.expr() if type(value) in _INNER:
                    place = _Place(value, _INNER[type(value)])
                case _:
                    return None

    def _is_batch(self, value: ast.AST) -> bool:
        return (
            isinstance(value, (*_LISTS, *_DISPLAYS))
            and makes_a_batch(value, self._is_call)
            and all(self._is_call(leaf) or isinstance(leaf, ast.Constant) for leaf in leaves(value))
        )

    def _is_call(self, node: ast.AST) -> bool:
        node = node.value if isinstance(node, ast.Await) else node
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self._tools
        )

    def _name(self) -> str:
        while True:
            self._count += 1
            name = f"_batch_{self._count}"
            if name not in self._used:
                return name


class _Place:
    """A place in the tree that holds an expression."""

    def __init__(self, holder: ast.AST | list[ast.expr], key: str | int) -> None:
        self._holder = holder
        self._key = key

    @property
    def value(self) -> ast.AST:
        if isinstance(self._holder, list):
            assert isinstance(self._key, int)
            return self._holder[self._key]
        value: ast.AST = getattr(self._holder, str(self._key))
        return value

    def take(self, name: ast.expr) -> ast.expr:
        """The expression; ``name`` stands in its place then."""
        taken = self.value
        assert isinstance(taken, ast.expr)
        new = ast.copy_location(name, taken)
        if isinstance(self._holder, list):
            assert isinstance(self._key, int)
            self._holder[self._key] = new
        else:
            setattr(self._holder, str(self._key), new)
        return taken


def _is_dotted(node: ast.expr) -> bool:
    """A name or a constant, or attributes of one: to evaluate it does nothing that anyone sees."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))
