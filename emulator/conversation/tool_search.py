"""The function with which a model finds tools by words or by a pattern, and what it returns: their stubs.

Knows nothing of requests or fronts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from emulator.hosted.hosted_tool import HostedResult, HostedTool
from emulator.tools.tool import Tool
from emulator.tools.toolset import SchemaError, Toolset
from emulator.tools.validator import matcher

REGEX_SEARCH, BM25_SEARCH = "tool_search_tool_regex", "tool_search_tool_bm25"
"""Anthropic's names of search tools: what the model sends is a regular expression, or words."""
MAX_FOUND = 5
"""Tools that a search finds by words, besides those that it names."""
_MAX_NAMED = 10
_MAX_PATTERN = 200
_MAX_RESULT = 20_000
"""Characters of a search's result, after the first tool."""
_NAMES = re.compile(r"[\w.:/-]+")

_FUNCTION: Mapping[str, Any] = {
    "name": "search_tools",
    "description": "Find further functions, and return how to call them. Call it before a function"
    " that is not shown.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "What the function should do, or names of functions.",
            }
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}

_PATTERN: Mapping[str, Any] = {
    **_FUNCTION["parameters"],
    "properties": {
        "query": {
            "type": "string",
            "description": "A regular expression, which a name or description contains.",
        }
    },
}
_REGEX_FUNCTION: Mapping[str, Any] = {**_FUNCTION, "parameters": _PATTERN}


def search_tool(toolset: Toolset, name: object = None) -> HostedTool:
    """A function that finds tools of ``toolset`` and returns their stubs; ``name`` is the client's for it."""
    name = name if name in (REGEX_SEARCH, BM25_SEARCH) else _FUNCTION["name"]
    function = _REGEX_FUNCTION if name == REGEX_SEARCH else _FUNCTION

    def start(arguments: dict[str, Any]) -> Future[HostedResult]:
        future: Future[HostedResult] = Future()
        future.set_result(search(toolset, arguments["query"], str(name)))
        return future

    definition = {"type": "function", "function": function}
    return HostedTool(definition, "tool_search", "", str(name), start)


def find(toolset: Toolset, query: str) -> list[Tool]:
    """The tools that ``query`` names, then those that share its words."""
    named = (toolset.find(word) for word in _NAMES.findall(query[:4_000]))
    chosen = {tool.name: tool for tool in named if tool is not None}
    ranked = toolset.index.rank(query)[:MAX_FOUND]
    return [
        *(
            {t.name: t for t in [*chosen.values()][:_MAX_NAMED]} | {t.name: t for t in ranked}
        ).values()
    ]


def _matching(toolset: Toolset, pattern: str) -> list[Tool]:
    """The first tools whose texts match, in linear time. Raises `SchemaError`."""
    if len(pattern) > _MAX_PATTERN:
        raise SchemaError("too long", "query")
    matches = matcher(pattern)
    return [tool for tool in toolset.tools if any(map(matches, _texts(tool)))][:MAX_FOUND]


def _texts(tool: Tool) -> Iterator[str]:
    yield from (tool.name, tool.description)
    for argument in tool.arguments:
        yield from (argument.name, argument.remark("description") or "")


def search(toolset: Toolset, query: str, name: str) -> HostedResult:
    try:
        found = (_matching if name == REGEX_SEARCH else find)(toolset, query)
    except SchemaError:
        return HostedResult(
            f"{query[:_MAX_PATTERN]!r} is no regular expression, or too long.", True
        )
    if not found:
        offered = [tool.python_name for tool in toolset.tools]
        near = difflib.get_close_matches(query[:80], offered, n=3) or offered[:20]
        shown = ", ".join(near)
        text = f"No function matches {query[:200]!r}. Search by other words or by names, such as {shown}."
        return HostedResult(text)
    while len(toolset.subset(found).stubs) > _MAX_RESULT and len(found) > 1:
        found.pop()
    names = tuple(tool.name for tool in found)
    return HostedResult(found_stubs(toolset, found), found=names)


def found_stubs(toolset: Toolset, found: Sequence[Tool]) -> str:
    """What the model reads of tools that a search found."""
    return f"These functions can be called now:\n\n{toolset.subset(found).stubs}"
