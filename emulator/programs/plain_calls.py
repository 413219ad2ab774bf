"""Read programs that consist only of calls with literal arguments, as most programs of models do.

    office = find_place(name="office")
    send(to=["ann", "bob"], text="Lunch?")
    send(**{"to": ["eve"], "text": "Dinner?"})

Their calls can be read from the syntax tree, so no engine is needed: that saves about a third of the cost
of such a request (docs/performance.md). The calls are bound, validated and ordered by `attempt`, as those
of any program.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from emulator.programs.program import Program
from emulator.programs.rewrite import RewrittenProgram
from emulator.programs.sites import called_tool
from sandbox.engine import JSON, Finished, Paused, Step

_MAX_DEPTH = 20
"""Of lists and dicts in an argument."""


class PlainCalls:
    """A `sandbox.engine.Session` that yields the given calls one after the other and runs nothing."""

    def __init__(self, calls: Sequence[Paused]) -> None:
        self._calls = calls
        self._remaining: Iterator[Paused] = iter(())

    @property
    def rewritten(self) -> RewrittenProgram:
        """The program unchanged: every call may get a placeholder, since no statement inspects a result."""
        lines = {call.line: call.line for call in self._calls if call.line is not None}
        return RewrittenProgram("", lines, {call.name: (0, call.name) for call in self._calls}, {})

    def start(self, source: str) -> Step:  # noqa: ARG002  # the calls are known
        self._remaining = iter(self._calls)
        return next(self._remaining)

    def resume(self, *results: JSON) -> Step:  # noqa: ARG002  # no statement uses the result
        # No value, even if the last statement is a call: its result is shown as a result.
        return next(self._remaining, None) or Finished()

    def kill(self) -> None:
        """Nothing runs."""


def plain_calls(program: Program, tools: Collection[str]) -> PlainCalls | None:
    """The calls of ``program``. Returns None unless the program consists only of calls with literal
    arguments."""
    calls: list[Paused] = []
    for statement in program.tree.body:
        if (call := _tool_call(statement, tools)) is None:
            return None
        name, node = call
        try:
            args = tuple(_literal(argument) for argument in node.args)
            kwargs = _keywords(node)
        except _NotLiteral:
            return None
        calls.append(Paused(name, args, kwargs, statement.lineno))
    return PlainCalls(calls) if calls else None


def _tool_call(statement: ast.stmt, tools: Collection[str]) -> tuple[str, ast.Call] | None:
    """The call of a tool, awaited or not, that is a whole statement or the value of an assignment to one
    variable."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value) if target not in tools:
            pass
        case ast.Expr(value=value):
            pass
        case _:
            return None
    value = value.value if isinstance(value, ast.Await) else value
    name = called_tool(value, tools)
    return (name, value) if name and isinstance(value, ast.Call) else None


class _NotLiteral(Exception):
    """The expression is no literal of a JSON value."""


def _keywords(call: ast.Call) -> dict[str, Any]:
    """The keyword arguments, also those in a literal ``**{...}``. Raises `_NotLiteral`, also for one that is
    given twice."""
    arguments: dict[str, Any] = {}
    for word in call.keywords:
        if word.arg is None and not isinstance(word.value, ast.Dict):
            raise _NotLiteral
        value = _literal(word.value)
        pairs = value if word.arg is None else {word.arg: value}
        if arguments.keys() & pairs.keys():
            raise _NotLiteral
        arguments |= pairs
    return arguments


def _literal(node: ast.expr, depth: int = 0) -> Any:
    """The value of a literal, as engines return it: a tuple becomes a list."""
    match node:
        case ast.Constant(value=None | bool() | int()):
            return node.value
        case ast.Constant(value=str(text)) if text.isascii() or not _has_surrogate(text):
            return text
        case ast.Constant(value=float(number)) if math.isfinite(number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if (
            math.isfinite(number) and not isinstance(number, bool)
        ):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items) if depth < _MAX_DEPTH:
            return [_literal(item, depth + 1) for item in items]
        case ast.Dict(keys=keys, values=values) if depth < _MAX_DEPTH:
            return {_key(k): _literal(v, depth + 1) for k, v in zip(keys, values, strict=True)}
    raise _NotLiteral


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return str(_literal(node))
    raise _NotLiteral


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
