"""Read programs that consist only of calls with literal arguments, as most programs of models do.

    office = find_place(name="office")
    send(to=["ann", "bob"], text="Lunch?")
    [send(**{"to": ["eve"], "text": "Dinner?"}), find_place(name="home")]

Their calls can be read from the syntax tree, so no engine is needed: that saves about a third of the cost
of such a request (docs/performance.md). The calls are bound, validated and ordered by `attempt`, as those
of any program.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from emulator.programs.placeholder import BATCH
from emulator.programs.program import Program
from emulator.programs.rewrite import RewrittenProgram
from emulator.programs.sites import called_tool
from sandbox.engine import JSON, Finished, Paused, Step

_MAX_DEPTH = 20
"""Of lists and dicts in an argument."""


class PlainCalls:
    """A `sandbox.engine.Session` that yields the given calls one after the other and runs nothing."""

    def __init__(self, steps: Sequence[Paused], tools: Mapping[str, tuple[int, str]]) -> None:
        """``tools``: name of a step -> the site of its display, or 0, and its tool's name."""
        self._steps = steps
        self._tools = tools
        self._remaining: Iterator[Paused] = iter(())

    @property
    def rewritten(self) -> RewrittenProgram:
        """The program unchanged: every call may get a placeholder, since no statement inspects a result."""
        lines = {step.line: step.line for step in self._steps if step.line is not None}
        return RewrittenProgram("", lines, self._tools, {})

    def start(self, source: str) -> Step:  # noqa: ARG002  # the calls are known
        self._remaining = iter(self._steps)
        return next(self._remaining)

    def resume(self, *results: JSON) -> Step:  # noqa: ARG002  # no statement uses the result
        # No value, even if the last statement is a call: its result is shown as a result.
        return next(self._remaining, None) or Finished()

    def kill(self) -> None:
        """Nothing runs."""


def plain_calls(program: Program, tools: Collection[str]) -> PlainCalls | None:
    """The calls of ``program``. Returns None unless the program consists only of calls with literal
    arguments, and of lists of such calls."""
    steps: list[Paused] = []
    called: dict[str, tuple[int, str]] = {}
    for place, statement in enumerate(program.tree.body, 1):
        calls = _tool_calls(statement, tools)
        if not calls:
            return None
        site = place if len(calls) > 1 else 0
        if site:
            steps.append(Paused(BATCH, (site,)))
        for tool, node in calls:
            try:
                args = tuple(_literal(argument) for argument in node.args)
                kwargs = _keywords(node)
            except _NotLiteral:
                return None
            name = f"{tool} {site}"
            called[name] = (site, tool)
            steps.append(Paused(name, args, kwargs, statement.lineno))
    return PlainCalls(steps, called) if steps else None


def _tool_calls(statement: ast.stmt, tools: Collection[str]) -> list[tuple[str, ast.Call]]:
    """The calls of tools, awaited or not, that make up a statement, or what it assigns to one variable:
    one call, or those of a display. Returns an empty list for any other statement."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value) if target not in tools:
            pass
        case ast.Expr(value=value):
            pass
        case _:
            return []
    nodes = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    calls: list[tuple[str, ast.Call]] = []
    for node in nodes:
        call = node.value if isinstance(node, ast.Await) else node
        name = called_tool(call, tools)
        if not name or not isinstance(call, ast.Call):
            return []
        calls.append((name, call))
    return calls


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
