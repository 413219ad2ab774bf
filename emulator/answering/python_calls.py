"""Calls of the history as the Python that a model would have written for them.

Long texts are readable, in triple quotes, where a call is told; where it is only mentioned they are cut.
Knows nothing of messages.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from emulator import json_codec
from emulator.protocol import FunctionCall
from emulator.tools.toolset import Toolset

_MAX_MENTIONED = 80
"""Characters of an argument that is only mentioned."""
_MAX_MENTION = 400
_MAX_DEPTH = 16
"""Of lists and dicts whose texts are made readable; what lies deeper is a plain repr."""

_FENCE = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)


def write_call(function: FunctionCall, toolset: Toolset) -> str:
    """The whole call, as valid Python whose arguments are equal to those of ``function``."""
    name, arguments = _read(function, toolset)
    if arguments is None:
        return f"{name}({function.arguments})"
    if _are_keywords(arguments):
        named = [f"{key}={literal(value)}" for key, value in arguments.items()]
        return f"{name}({', '.join(named)})"
    return f"{name}(**{literal(arguments)})"


def mention(function: FunctionCall, toolset: Toolset) -> str:
    """The call in so few words that it can be told apart: long arguments are cut, and marked as such."""
    name, arguments = _read(function, toolset)
    if arguments is None:
        return f"{name}({_cut(function.arguments, len(function.arguments))})"
    if _are_keywords(arguments):
        named = ", ".join(f"{key}={_mentioned(value)}" for key, value in arguments.items())
    else:
        named = ", ".join(f"{key!r}: {_mentioned(value)}" for key, value in arguments.items())
        named = f"**{{{named}}}"
    if len(named) > _MAX_MENTION:
        named = f"{named[:_MAX_MENTION]}... [{len(arguments)} arguments]"
    return f"{name}({named})"


def literal(value: Any, depth: int = 0) -> str:
    """A JSON value as a Python literal: ``ast.literal_eval`` gives it back."""
    if depth < _MAX_DEPTH:
        match value:
            case str():
                return text_literal(value)
            case list():
                return f"[{', '.join(literal(item, depth + 1) for item in value)}]"
            case dict():
                pairs = [f"{key!r}: {literal(item, depth + 1)}" for key, item in value.items()]
                return f"{{{', '.join(pairs)}}}"
    return repr(value)


def text_literal(text: str) -> str:
    """Text as a Python literal, in triple quotes where it has several lines."""
    if "\n" not in text.rstrip("\n"):
        return repr(text)
    inside = text.replace("\\", "\\\\")
    if not inside.replace("\n", "").replace("\t", "").isprintable():
        inside = "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in inside)
    for quote in ('"""', "'''"):
        if quote not in inside and not inside.endswith(quote[0]):
            return f"{quote}{inside}{quote}"
    escaped = inside.replace('"', '\\"')
    return f'"""{escaped}"""'


def fence(text: str) -> str:
    """The backticks to put around ``text``: more than any line of it begins with."""
    return "`" * max([2, *(len(found) for found in _FENCE.findall(text))]) + "`"


def _read(function: FunctionCall, toolset: Toolset) -> tuple[str, dict[str, Any] | None]:
    """The function's name and arguments as Python has them; None where they are no JSON object."""
    tool = toolset.find(function.name)
    name = tool.python_name if tool else function.name.replace("-", "_").replace(".", "_")
    spelt: dict[str, str] = {p.name: p.python_name for p in tool.arguments} if tool else {}
    try:
        arguments = json_codec.loads(function.arguments or "{}")
    except json_codec.NotJSON:
        arguments = None
    if not isinstance(arguments, dict):
        return name, None
    return name, {spelt.get(str(key), str(key)): value for key, value in arguments.items()}


def _are_keywords(arguments: Mapping[str, Any]) -> bool:
    return all(key.isidentifier() and not keyword.iskeyword(key) for key in arguments)


def _mentioned(value: Any) -> str:
    written = repr(value)
    return _cut(written, len(value) if isinstance(value, str) else len(written))


def _cut(written: str, length: int) -> str:
    if len(written) <= _MAX_MENTIONED:
        return written
    return f"{written[: _MAX_MENTIONED - 20]}... [{length:,} characters]"
