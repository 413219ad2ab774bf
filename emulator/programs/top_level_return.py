"""Rewrite ``return`` outside functions, as models write it: it ends the program.

Statements after it do not run. Its value is printed unless it is None; if the value is a tool call, the
call becomes a statement of its own, so that its result is shown as a result.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

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
    _Returns(tools).visit(tree)
    ast.fix_missing_locations(tree)


class _Returns(ast.NodeTransformer):
    """Rewrites the returns inside other statements."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, ast.expr | _SCOPES) else super().visit(node)

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        exit_program = ast.Raise(ast.Name("SystemExit", ast.Load()), None)
        return [*_output(node, self._tools), ast.copy_location(exit_program, node)]


_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _output(statement: ast.Return, tools: Collection[str]) -> list[ast.stmt]:
    """Statements that evaluate the returned value and print it."""
    value = statement.value
    if value is None:
        return []
    call = value.value if isinstance(value, ast.Await) else value
    if called_tool(call, tools):
        return [ast.copy_location(ast.Expr(value), statement)]
    output = parse(f"{_VALUE} = None\nif {_VALUE} is not None:\n    print({_VALUE})").body
    for node in (part for new in output for part in walk(new)):
        ast.copy_location(node, statement)
    assert isinstance(output[0], ast.Assign)
    output[0].value = value
    return output
