"""Parse a call whose last text is still open, in each syntax that can be streamed early (`early_call`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.core import json_codec
from emulator.reading.lexing import JsonScan, PythonScan
from sandbox.parsing import literal, parse


@dataclass(frozen=True)
class OpenText:
    """A string without its closing quote."""

    start: int
    quote: str
    prefix: str = ""
    """``r`` for a raw string."""


@dataclass(frozen=True)
class OpenCall:
    """A call up to its last text, which is still open."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class CallSyntax:
    """The functions for one syntax."""

    open_text: Callable[[str], OpenText | None]
    """Find the text that is open at the end."""
    opening: Callable[[str, str], OpenCall | None]
    """Parse the call, given its text and the missing closing quote; None if it is not a call."""
    decoded: Callable[[str, str], str]
    """Decode a piece of the text, given its quote. Raises ValueError or SyntaxError."""
    escape: re.Pattern[str]
    """Matches an incomplete escape at the end of a piece."""


# Python


def _open_python_text(text: str) -> OpenText | None:
    scan, at, start = PythonScan(), 0, 0
    while at < len(text):
        before = scan.quote
        _, at = scan.step(text, at)
        if scan.quote and not before:
            start = at
    if scan.quote not in ('"""', "'''", '"', "'"):
        return None
    before = text[: start - len(scan.quote)]
    return OpenText(start, scan.quote, "r" if before[-1:] in ("r", "R") else "")


def _python_opening(text: str, quote: str) -> OpenCall | None:
    scan = PythonScan()
    scan.feed(text)
    try:
        tree = parse(text + quote + scan.missing)
        return _python_call(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _python_call(tree: ast.Module) -> OpenCall | None:
    match tree.body:
        case [ast.Expr(value=ast.Call() as call)]:
            pass
        case [ast.Assign(targets=[ast.Name()], value=ast.Call() as call)]:
            pass
        case _:
            return None
    match call:
        case ast.Call(func=ast.Name("print"), args=[ast.Call() as inside], keywords=[]):
            call = inside
    match [*call.args, *(word.value for word in call.keywords)]:
        case [*_, ast.Constant(value=str())] if isinstance(call.func, ast.Name):
            args = [ast.literal_eval(node) for node in call.args]
            kwargs = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
            return OpenCall(call.func.id, args, kwargs)
    return None


def _decoded_python(piece: str, quote: str) -> str:
    value = literal(quote + piece + quote.removeprefix("r"))
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


_PYTHON_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:N(?:\{[^}]{0,100})?|x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}"
    r"|[0-7]{1,2})?)\Z"
)


# JSON between tags: {"name": ..., "arguments": {...}}

_ARGUMENTS = ("arguments", "parameters")


_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*("|\\?\Z)', re.DOTALL)


def _open_json_text(text: str) -> OpenText | None:
    start = text.find("{")
    strings = _JSON_STRING.finditer(text, start) if start >= 0 else ()
    still_open = [string.start() + 1 for string in strings if string[1] != '"']
    return OpenText(still_open[0], '"') if still_open else None


def _json_opening(text: str, quote: str) -> OpenCall | None:
    text = text[text.index("{") :]
    scan = JsonScan()
    scan.feed(text)
    try:
        value = json_codec.loads(text + quote + scan.missing)
    except json_codec.NotJSON:
        return None
    match value:
        case {"name": str(name), **others} if len(others) == 1:
            [(field, arguments)] = others.items()
        case _:
            return None
    if field not in _ARGUMENTS or [*value][-1] != field or not isinstance(arguments, dict):
        return None
    if not arguments or not isinstance([*arguments.values()][-1], str):
        return None
    return OpenCall(name, [], arguments)


def _decoded_json(piece: str, quote: str) -> str:
    return str(json_codec.loads(quote + piece + quote))


_JSON_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?)\Z"
)

SYNTAXES: Mapping[str, CallSyntax] = {
    "python": CallSyntax(_open_python_text, _python_opening, _decoded_python, _PYTHON_ESCAPE),
    "markup": CallSyntax(_open_json_text, _json_opening, _decoded_json, _JSON_ESCAPE),
}
"""By the block's dialect."""
