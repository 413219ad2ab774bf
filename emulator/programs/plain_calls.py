"""Programs that are nothing but calls with written-out arguments, as most of what models write.

    office = find_place(name="office")
    send(to=["ann", "bob"], text="Lunch?")

What such a program calls stands in its text: it is read, and no engine is asked to run it. Its calls are
bound and put in order like those of any other (`attempt`), so all that an engine would add is the round trips
to its worker. Whatever says more than that is an engine's, which does the same where both are able.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from emulator.programs.placeholders import Prepared
from emulator.programs.program import Program
from sandbox.engine import JSON, Finished, Paused, Step
from sandbox.parsing import parse

_MAX_DEPTH = 20
"""Of lists and dicts in an argument."""


class PlainCalls:
    """The calls of such a program, one after the other: a `sandbox.engine.Session` in which nothing runs."""

    def __init__(self, calls: Sequence[Paused]) -> None:
        self._calls = calls
        self._left: Iterator[Paused] = iter(())

    @property
    def prepared(self) -> Prepared:
        """The program as it is: all of its calls may be passed before their results are known."""
        lines = {call.line: call.line for call in self._calls if call.line is not None}
        return Prepared("", lines, {call.name: (0, call.name) for call in self._calls}, {})

    def start(self, source: str) -> Step:  # noqa: ARG002  # it has been read
        self._left = iter(self._calls)
        return next(self._left)

    def resume(self, value: JSON) -> Step:  # noqa: ARG002  # nothing looks at it
        # The result of a last call is told as that, and not once more as the program's value.
        return next(self._left, None) or Finished()

    def kill(self) -> None:
        """Nothing runs."""


def plain_calls(program: Program, tools: Collection[str]) -> PlainCalls | None:
    """The calls of ``program``; None where they are not all there is to it."""
    calls: list[Paused] = []
    for line, statement in _statements(program):
        if (called := _called(statement, tools)) is None:
            return None
        name, call = called
        try:
            args = tuple(_literal(argument) for argument in call.args)
            kwargs = {str(word.arg): _literal(word.value) for word in call.keywords if word.arg}
        except _NotPlain:
            return None
        if len(kwargs) < len(call.keywords):  # **more, or a name twice
            return None
        calls.append(Paused(name, args, kwargs, line))
    return PlainCalls(calls) if calls else None


def _statements(program: Program) -> Iterator[tuple[int, ast.stmt]]:
    """Each statement and its line in the program's source, parsed where its reader has not.

    One by one: of a long program that is more than calls, the first such statement tells.
    """
    before = 0
    for statement in program.statements:
        if statement.tree is not None:
            yield before + 1, statement.tree
        else:
            for node in parse(statement.source).body:
                yield before + node.lineno, node
        before += statement.source.count("\n") + 1


def _called(statement: ast.stmt, tools: Collection[str]) -> tuple[str, ast.Call] | None:
    """The tool that a statement calls, if the call stands alone or is given to a name of the program's."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value) if target not in tools:
            pass
        case ast.Expr(value=value):
            pass
        case _:
            return None
    match value:
        case ast.Call(func=ast.Name(id=name)) if name in tools:
            return name, value
    return None


class _NotPlain(Exception):
    """More than a value that JSON has a shape for, in plain sight."""


def _literal(node: ast.expr, depth: int = 0) -> Any:
    """The value that an expression spells out, as engines give it: a tuple is a list."""
    match node:
        case ast.Constant(value=None | bool() | int()):
            return node.value
        case ast.Constant(value=str(text)) if text.isascii() or not _is_half(text):
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
    raise _NotPlain


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return str(_literal(node))
    raise _NotPlain


def _is_half(text: str) -> bool:
    """Whether there is half of a surrogate pair in it."""
    return any("\ud800" <= character <= "\udfff" for character in text)
