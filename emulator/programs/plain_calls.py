"""Read programs of calls with literal arguments, and of prints: most programs of models are such.

    office = find_place(name="office")
    send(to=["ann", "bob"], text="Lunch?")
    [send(**{"to": ["eve"], "text": "Dinner?"}), find_place(name="home")]
    print("Sent:", office["address"])

Their calls can be read, and nothing runs: that saves a fork and a replay (docs/performance.md). The calls
are bound, validated and ordered by `run_calls`, as those of any program.

What is printed may be texts, results, parts of them (``office["address"]``) and texts that contain these. A
part may be missing: then the program raises there, so acting calls after it wait
(`CallRequest.skips_output`). Once a result is known, a child runs a program with prints for its output.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from emulator.programs.program import Program
from emulator.programs.run_calls import CallRequest
from sandbox.programs.server import digest


def plain_calls(
    program: Program, tools: Collection[str], *, with_output: bool = False
) -> Sequence[CallRequest] | None:
    """The calls of ``program``. Returns None unless the program consists only of literal calls, lists of
    such calls, and prints.

    ``with_output``: the program's output is needed, so it may not print.
    """
    reading = _Reading(tools)
    try:
        if program.calls is not None:
            # JSON and tags: all calls were written before any result, as native servers send them.
            batch = int(len(program.calls) > 1)
            for line, call in enumerate(program.calls, 1):
                reading.call(call.name, call.args, call.kwargs, line, batch)
        else:
            for statement in program.tree.body:
                reading.statement(statement)
    except (_NotPlain, RecursionError):
        return None
    if not reading.requests or (with_output and reading.prints):
        return None
    return reading.requests


class _NotPlain(Exception):
    """The program must run."""


class _Reading:
    """Collects the steps of a program, statement by statement. Each method raises `_NotPlain`."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._results: dict[str, bool] = {}
        """Variable -> True if it is one result, False if it is a list of results."""
        self._line = 0
        self.prints = False
        self._skips = False
        """A print needs a result."""
        self.requests: list[CallRequest] = []

    def statement(self, statement: ast.stmt) -> None:
        self._line = statement.lineno
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=values, keywords=[])) if (
                "print" not in self._tools and "print" not in self._results
            ):
                self.prints = True
                for value in values:
                    self._printed(value)
            case ast.Expr(value=ast.Name() as value):
                self.prints = True
                self._printed(value)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if (
                target not in self._tools
            ):
                self._calls(value)
                self._results[target] = not isinstance(value, ast.List | ast.Tuple)
            case ast.Expr(value=value):
                self._calls(value)
            case _:
                raise _NotPlain

    def call(
        self, tool: str, args: Sequence[Any], kwargs: Mapping[str, Any], line: int, batch: int = 0
    ) -> None:
        if tool not in self._tools:
            raise _NotPlain
        key = digest(tool, args, kwargs)
        request = CallRequest(
            tool, args, kwargs, line=line, key=key, batch=batch, skips_output=self._skips
        )
        self.requests.append(request)

    def _calls(self, value: ast.expr) -> None:
        """One call of a tool, awaited or not, or a display of such calls."""
        nodes = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        if not nodes:
            raise _NotPlain
        batch = len(self.requests) + 1 if len(nodes) > 1 else 0
        for node in nodes:
            call = node.value if isinstance(node, ast.Await) else node
            match call:
                case ast.Call(func=ast.Name(id=name), args=args):
                    self.call(name, [*map(_literal, args)], _keywords(call), self._line, batch)
                case _:
                    raise _NotPlain

    def _printed(self, value: ast.expr) -> None:
        match value:
            case ast.Constant(value=str()):
                _literal(value)
            case ast.Name(id=name) if name in self._results:
                pass
            case ast.JoinedStr(values=parts):
                for part in parts:
                    self._printed(part)
            case ast.FormattedValue(value=part, format_spec=form) if not form or self._is_part(
                part
            ):
                self._printed(part)
            case _ if self._is_part(value):
                self._skips = True
            case _:
                self._calls(value)

    def _is_part(self, value: ast.expr) -> bool:
        """Return True for an item, an attribute or a method of a result, and of another part."""
        match value:
            case ast.Subscript(value=whole, slice=ast.Constant()) | ast.Attribute(value=whole):
                return self._is_part(whole) or (
                    isinstance(whole, ast.Name) and self._results.get(whole.id, False)
                )
            case ast.Call(func=ast.Attribute() as method, args=args):
                for argument in args:
                    _literal(argument)
                _keywords(value)
                return self._is_part(method)
        return False


def _keywords(call: ast.Call) -> dict[str, Any]:
    """The keyword arguments, also those in a literal ``**{...}``. Raises `_NotPlain`, also for one that is
    given twice."""
    arguments: dict[str, Any] = {}
    for word in call.keywords:
        if word.arg is None and not isinstance(word.value, ast.Dict):
            raise _NotPlain
        value = _literal(word.value)
        pairs = value if word.arg is None else {word.arg: value}
        if arguments.keys() & pairs.keys():
            raise _NotPlain
        arguments |= pairs
    return arguments


def _literal(node: ast.expr) -> Any:
    """The value of a literal, as a child sends it: a tuple becomes a list."""
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
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(k): _literal(v) for k, v in zip(keys, values, strict=True)}
    raise _NotPlain


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return str(_literal(node))
    raise _NotPlain


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
