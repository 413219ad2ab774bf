"""Rewrite ``return`` outside functions, as models write it: it ends the program.

Statements after it do not run. Its value is printed unless it is None; if the value is a tool call, the
call becomes a statement of its own, so that its result is shown as a result.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from emulator.programs.sites import called_tool
from sandbox.parsing import parse, walk

_VALUE = "_returned"


def rewrite_returns(tree: ast.Module, tools: Collection[str]) -> None:
    """Rewrite each ``return`` outside functions, in place."""
    if not any(isinstance(node, ast.Return) for node in walk(tree)):
        return
    for index, statement in enumerate(tree.body):
        if isinstance(statement, ast.Return):
            tree.body = [*tree.body[:index], *_output(statement, tools)]
            break
    for statement in tree.body:
        _rewrite_inside(statement, tools)
    ast.fix_missing_locations(tree)


def _rewrite_inside(statement: ast.stmt, tools: Collection[str]) -> None:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for holder, field in _blocks(statement):
        block: list[ast.stmt] = []
        for inner in getattr(holder, field):
            _rewrite_inside(inner, tools)
            if isinstance(inner, ast.Return):
                exit_program = ast.Raise(ast.Name("SystemExit", ast.Load()), None)
                block += [*_output(inner, tools), _relocated(exit_program, inner)]
            else:
                block.append(inner)
        setattr(holder, field, block)


def _blocks(statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    parts = (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    for holder in (statement, *parts):
        for field in ("body", "orelse", "finalbody"):
            if getattr(holder, field, None):
                yield holder, field


def _output(statement: ast.Return, tools: Collection[str]) -> list[ast.stmt]:
    """Statements that evaluate the returned value and print it."""
    value = statement.value
    if value is None:
        return []
    call = value.value if isinstance(value, ast.Await) else value
    if called_tool(call, tools):
        return [ast.copy_location(ast.Expr(value), statement)]
    output = parse(f"{_VALUE} = None\nif {_VALUE} is not None:\n    print({_VALUE})").body
    assert isinstance(output[0], ast.Assign)
    output[0].value = value
    return [_relocated(new, statement) for new in output]


def _relocated(statement: ast.stmt, place: ast.stmt) -> ast.stmt:
    """The new statement, at the position of ``place``; nodes that were part of ``place`` keep theirs."""
    original = set(walk(place))
    for node in walk(statement):
        if node not in original and isinstance(node, (ast.stmt, ast.expr)):
            ast.copy_location(node, place)
    return statement
