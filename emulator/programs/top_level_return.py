"""``return`` outside a function, as models write it: it ends the program. Pure AST.

What stands behind it does not run, and what it returns is printed, unless it is None. The result of a call is
left to be told as that of a statement of its own is.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from sandbox.parsing import parse, walk

_VALUE = "_returned"


def leave_at_returns(tree: ast.Module, tools: Collection[str]) -> None:
    """Change each ``return`` that is in no function, in place."""
    if not any(isinstance(node, ast.Return) for node in walk(tree)):
        return
    for place, statement in enumerate(tree.body):
        if isinstance(statement, ast.Return):
            tree.body = [*tree.body[:place], *_told(statement, tools)]
            break
    for statement in tree.body:
        _leave_within(statement, tools)
    ast.fix_missing_locations(tree)


def _leave_within(statement: ast.stmt, tools: Collection[str]) -> None:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for holder, field in _blocks(statement):
        block: list[ast.stmt] = []
        for inner in getattr(holder, field):
            _leave_within(inner, tools)
            if isinstance(inner, ast.Return):
                leaving = ast.Raise(ast.Name("SystemExit", ast.Load()), None)
                block += [*_told(inner, tools), _moved(leaving, inner)]
            else:
                block.append(inner)
        setattr(holder, field, block)


def _blocks(statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    parts = (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    for holder in (statement, *parts):
        for field in ("body", "orelse", "finalbody"):
            if getattr(holder, field, None):
                yield holder, field


def _told(statement: ast.Return, tools: Collection[str]) -> list[ast.stmt]:
    """What becomes of the value that is returned."""
    value = statement.value
    if value is None:
        return []
    call = value.value if isinstance(value, ast.Await) else value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in tools:
        return [ast.copy_location(ast.Expr(value), statement)]
    told = parse(f"{_VALUE} = None\nif {_VALUE} is not None:\n    print({_VALUE})").body
    assert isinstance(told[0], ast.Assign)
    told[0].value = value
    return [_moved(new, statement) for new in told]


def _moved(statement: ast.stmt, place: ast.stmt) -> ast.stmt:
    its_own = set(walk(place))
    for node in walk(statement):
        if node not in its_own and isinstance(node, (ast.stmt, ast.expr)):
            ast.copy_location(node, place)
    return statement
