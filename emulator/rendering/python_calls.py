"""Write calls as the Python that a model would have written for them. Knows nothing of messages."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from emulator.core import json_codec
from emulator.core.protocol import FunctionCall
from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset
from emulator.tools.type_trees import quote

_MAX_ARGUMENT = 80
"""Characters of one argument in a summary."""
_MAX_SUMMARY = 400
_MAX_DEPTH = 16
"""Nesting of lists and dicts up to which texts are made readable; deeper values are a plain ``repr``."""

_FENCE = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)


def example(toolset: Toolset, *, programs: bool) -> str:
    """Show how to call the first one or two of the tools that take about one argument.

    Arguments are ``...``: a model that copies the example literally gets an error, and calls nothing.
    With ``programs`` the second call shows that results can be used and printed in the same block; one tool
    is only called.
    """
    first, *others = sorted(toolset.tools, key=lambda tool: abs(len(_required(tool)) - 1))
    if not (programs and others):
        return _example_call(first)
    lines = [f"result = {_example_call(first)}"]
    second = next((_example_call(tool) for tool in others if _required(tool)), "")
    lines.append(f"print({second})  # may use result" if second else "print(result)")
    return "\n".join(lines)


def write_call(function: FunctionCall, toolset: Toolset) -> str:
    """The whole call, as valid Python whose arguments are equal to those of ``function``."""
    name, arguments = _parse_call(function, toolset)
    if arguments is None:
        return f"{name}({function.arguments})"
    if _are_keywords(arguments):
        keywords = [f"{key}={literal(value)}" for key, value in arguments.items()]
        return f"{name}({', '.join(keywords)})"
    return f"{name}(**{literal(arguments)})"


def summarize_call(function: FunctionCall, toolset: Toolset) -> str:
    """The call on one short line that tells it from other calls: long arguments are cut and marked as cut."""
    name, arguments = _parse_call(function, toolset)
    if arguments is None:
        return f"{name}({_cut(function.arguments, len(function.arguments))})"
    if _are_keywords(arguments):
        listed = ", ".join(f"{key}={_summarize(value)}" for key, value in arguments.items())
    else:
        pairs = (f"{quote(key)}: {_summarize(value)}" for key, value in arguments.items())
        listed = f"**{{{', '.join(pairs)}}}"
    if len(listed) > _MAX_SUMMARY:
        listed = f"{listed[:_MAX_SUMMARY]}... [{len(arguments)} arguments]"
    return f"{name}({listed})"


def literal(value: Any, depth: int = 0, *, one_line: bool = False) -> str:
    """A JSON value as a Python literal that ``ast.literal_eval`` reads back.

    Texts of several lines are in triple quotes, unless ``one_line``.
    """
    if depth < _MAX_DEPTH:
        match value:
            case str():
                return quote(value) if one_line else text_literal(value)
            case list():
                items = (literal(item, depth + 1, one_line=one_line) for item in value)
                return f"[{', '.join(items)}]"
            case dict():
                pairs = (
                    f"{quote(key)}: {literal(item, depth + 1, one_line=one_line)}"
                    for key, item in value.items()
                )
                return f"{{{', '.join(pairs)}}}"
    return repr(value)


def text_literal(text: str) -> str:
    """A text as a Python literal, in triple quotes if it has several lines."""
    if "\n" not in text.rstrip("\n"):
        return quote(text)
    inside = text.replace("\\", "\\\\")
    if not inside.replace("\n", "").replace("\t", "").isprintable():
        inside = "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in inside)
    for quotes in ('"""', "'''"):
        if quotes not in inside and not inside.endswith(quotes[0]):
            return f"{quotes}{inside}{quotes}"
    escaped = inside.replace('"', '\\"')
    return f'"""{escaped}"""'


def fenced(text: str, label: str = "text") -> str:
    """A fenced block of ``text``. It has more backticks than any line begins with, so no line ends it."""
    fence = "`" * max([2, *(len(found) for found in _FENCE.findall(text))]) + "`"
    return f"{fence}{label}\n{text}\n{fence}"


def _required(tool: Tool) -> list[str]:
    return [parameter.python_name for parameter in tool.arguments if parameter.required]


def _example_call(tool: Tool) -> str:
    return f"{tool.python_name}({', '.join(f'{name}=...' for name in _required(tool))})"


def _parse_call(function: FunctionCall, toolset: Toolset) -> tuple[str, dict[str, Any] | None]:
    """The Python names of a function and its arguments; None for arguments that are not a JSON object.

    Fields that the tool does not accept are left out, since the model did not write them: some frameworks
    add such fields.
    """
    tool = toolset.find(function.name)
    name = tool.python_name if tool else function.name.replace("-", "_").replace(".", "_")
    python_names: dict[str, str] = {p.name: p.python_name for p in tool.arguments} if tool else {}
    try:
        arguments = json_codec.loads(function.arguments or "{}")
    except json_codec.NotJSON:
        arguments = None
    if not isinstance(arguments, dict):
        return name, None
    return name, {
        python_names.get(str(key), str(key)): value
        for key, value in arguments.items()
        if tool is None or tool.members.schema_of(str(key)) is not None
    }


def _are_keywords(arguments: Mapping[str, Any]) -> bool:
    return all(key.isidentifier() and not keyword.iskeyword(key) for key in arguments)


def _summarize(value: Any) -> str:
    source = literal(value, one_line=True)
    return _cut(source, len(value) if isinstance(value, str) else len(source))


def _cut(source: str, length: int) -> str:
    if len(source) <= _MAX_ARGUMENT:
        return source
    return f"{source[: _MAX_ARGUMENT - 20]}... [{length:,} characters]"
