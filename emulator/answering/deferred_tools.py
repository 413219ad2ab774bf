"""Show a model some of many tools; the others are listed, and a search function shows how to call them.

Every tool can be called all the time: only the prompt changes. What it shows depends on the tools and on
the conversation's beginning, so the prompt of a turn starts with the one before. What the search finds is a
call's result, at the end. Knows nothing of fronts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import structlog

from emulator import json_codec
from emulator.answering.call_policy import offered_tools
from emulator.answering.hosted_offer import offer_hosted_tools
from emulator.answering.profiles import profile_of
from emulator.hosted.hosted_tool import HostedResult, HostedTool, HostedTools
from emulator.protocol import ChatCompletionRequest, Message, ToolChoice
from emulator.tools.stubs import escape_fences
from emulator.tools.tool import Tool
from emulator.tools.toolset import SchemaError, Toolset
from emulator.tools.validator import matcher
from emulator.upstream.routes import Route

log = structlog.get_logger()

SEARCH_TYPE = "tool_search"
"""The type of the item in ``tools`` with which a client defers tools."""
REGEX_SEARCH, BM25_SEARCH = "tool_search_tool_regex", "tool_search_tool_bm25"
"""Anthropic's names of such an item: what the model sends is a regular expression, or words."""
_MAX_PATTERN = 200
MAX_SHOWN = 20
"""Tools in the prompt, of those that the request's words find."""
MAX_FOUND = 5
"""Tools that a search finds by words, besides those that it names."""
_MAX_NAMED = 10
_LISTING_TOKENS = 1_000
"""Of deferred tools, if there is no limit."""
_MAX_RESULT = 20_000
"""Characters of a search's result, after the first tool."""
_CHARACTERS = 4
"""In a token, about (`usage_counter.estimate_tokens`)."""
_MAX_LINE = 80
_NAMES = re.compile(r"[\w.:/-]+")
_STUB = re.compile(r"^def (\w+)\(", re.MULTILINE)

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


@dataclass(frozen=True)
class DeferredTools:
    """The tools of a request that its prompt only lists."""

    names: frozenset[str]
    """Their names on the wire."""
    search: str
    """The name of the search function."""
    listing: str = field(repr=False)
    """Their names, for the model: in several lines."""

    def shown(self, toolset: Toolset) -> Toolset:
        """The part of a request's toolset that its prompt shows in full."""
        return toolset.subset(tool for tool in toolset.tools if tool.name not in self.names)

    def stubs(self, toolset: Toolset) -> str:
        """What the model reads of the toolset."""
        lines = (f"# {line}\n" for line in self.listing.splitlines())
        return f"{self.shown(toolset).stubs}\n{escape_fences(''.join(lines))}"

    def native_tools(
        self, tools: Sequence[Mapping[str, Any]], toolset: Toolset, messages: Sequence[Message]
    ) -> Iterator[Mapping[str, Any]]:
        """The definitions for an upstream that calls tools itself: of those shown and those found."""
        searches = {
            call.id
            for message in messages
            for call in message.tool_calls or ()
            if call.function and call.function.name == self.search
        }
        texts = [m.text for m in messages if m.role == "tool" and m.tool_call_id in searches]
        found = {
            tool.name
            for text in texts
            for name in _STUB.findall(text)
            if (tool := toolset.find(name))
        }
        for definition in tools:
            function = definition.get("function")
            name = function.get("name") if isinstance(function, Mapping) else None
            if name == self.search and isinstance(function, Mapping):
                described = f"{function['description']}\n\n{self.listing}"
                yield {**definition, "function": {**function, "description": described}}
            elif name not in self.names - found:
                yield definition


def tool_tokens(route: Route) -> int:
    """The longest stubs that a prompt shows to the route's model, in tokens; 0: no limit."""
    profile = profile_of(route.settings, route.model, route.description)
    for limit in (0 if profile.few_shot else None, profile.tool_tokens, route.settings.tool_tokens):
        if limit is not None:
            return limit
    return route.context_length // 4


def defer_tools(
    chat: ChatCompletionRequest, hosted: HostedTools, limit: int
) -> tuple[ChatCompletionRequest, HostedTools, DeferredTools | None]:
    """Defer the tools that the client defers, and others if their stubs are longer than ``limit`` tokens.

    Returns the request and its hosted tools with the search function. Raises `BadRequest`.
    """
    searches = (tool for tool in chat.tools or () if tool.get("type") == SEARCH_TYPE)
    asked = next((tool for tool in searches if tool.get("execution") != "client"), None)
    if asked:
        hosted = replace(hosted, types=hosted.types | {SEARCH_TYPE})
    if not limit and not asked:
        return chat, hosted, None
    toolset, policy = offered_tools(chat)
    names = frozenset(_deferred_names(chat.tools or ())) if asked else frozenset()
    visible = toolset.subset(tool for tool in toolset.tools if tool.name not in names)
    tokens = len(visible.stubs) // _CHARACTERS
    if limit and tokens > limit and len(visible.tools) > 1:
        shown = _best(visible, _beginning(chat.messages), limit * _CHARACTERS // 2)
        names |= {tool.name for tool in visible.tools if tool.name not in shown}
    deferred = [tool for tool in toolset.tools if tool.name in names]
    if policy.name is not None or not deferred:
        return chat, hosted, None
    search = replace(search_tool(toolset, (asked or {}).get("name")), is_hidden=not asked)
    chat, own = offer_hosted_tools(chat, HostedTools((search,), types=frozenset()))
    [search] = own.tools
    chat = _with_results(_with_allowed(chat, search), search, toolset)
    shown_stubs = toolset.subset(tool for tool in toolset.tools if tool.name not in names).stubs
    remaining = (limit or _LISTING_TOKENS) * _CHARACTERS - len(shown_stubs)
    remaining = max(remaining, _LISTING_TOKENS * _CHARACTERS // 4)
    heading = (
        f"{len(deferred)} more functions; {search.function_name}(query=...) shows how to call them:"
    )
    listing = f"{heading}\n{_listing(deferred, remaining)}"
    log.info("tools deferred", tools=len(toolset.tools), deferred=len(deferred), limit=limit)
    found = DeferredTools(frozenset(names), search.function_name, listing)
    return chat, replace(hosted, tools=(*hosted.tools, search)), found


def search_tool(toolset: Toolset, name: object = None) -> HostedTool:
    """A function that finds tools of ``toolset`` and returns their stubs; ``name`` is the client's for it."""
    name = name if name in (REGEX_SEARCH, BM25_SEARCH) else _FUNCTION["name"]
    function = _REGEX_FUNCTION if name == REGEX_SEARCH else _FUNCTION

    def start(arguments: dict[str, Any]) -> Future[HostedResult]:
        future: Future[HostedResult] = Future()
        future.set_result(_search(toolset, arguments["query"], str(name)))
        return future

    definition = {"type": "function", "function": function}
    return HostedTool(definition, "tool_search", "", str(name), start)


def _deferred_names(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        for kind in ("function", "custom"):
            described = tool.get(kind)
            if isinstance(described, Mapping) and described.get("defer_loading") is True:
                yield str(described.get("name"))


def _with_results(
    chat: ChatCompletionRequest, search: HostedTool, toolset: Toolset
) -> ChatCompletionRequest:
    """Write the results of searches whose items in the history have only their queries."""
    calls = {
        call.id: call.function.arguments
        for message in chat.messages
        for call in message.tool_calls or ()
        if call.function and call.server_label == "" and call.function.name == search.name
    }
    if not calls:
        return chat
    messages = [
        message.model_copy(update={"content": _search(toolset, query, search.name).content})
        if message.role == "tool" and (query := _query(calls.get(message.tool_call_id or "")))
        else message
        for message in chat.messages
    ]
    return chat.model_copy(update={"messages": messages})


def _query(arguments: str | None) -> str:
    try:
        parsed = json_codec.loads(arguments or "{}")
    except json_codec.NotJSON:
        return ""
    query = parsed.get("query") if isinstance(parsed, dict) else None
    return query if isinstance(query, str) else ""


def find(toolset: Toolset, query: str) -> list[Tool]:
    """The tools that ``query`` names, then those that share its words."""
    named = (toolset.named(word) for word in _NAMES.findall(query[:4_000]))
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


def _search(toolset: Toolset, query: str, name: str) -> HostedResult:
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
    while len(stubs := toolset.subset(found).stubs) > _MAX_RESULT and len(found) > 1:
        found.pop()
    names = tuple(tool.name for tool in found)
    return HostedResult(f"These functions can be called now:\n\n{stubs}", found=names)


def _beginning(messages: Sequence[Message]) -> str:
    """The user's words before the first answer: the same in all turns of a conversation."""
    first = takewhile(lambda message: message.role != "assistant", messages)
    return "\n".join(message.text for message in first if message.role == "user")


def _best(toolset: Toolset, request: str, limit: int) -> set[str]:
    """The names of the best matches for a request, whose stubs have at most ``limit`` characters together."""
    chosen: set[str] = set()
    for tool in toolset.index.rank(request)[:MAX_SHOWN]:
        length = len(toolset.subset([tool]).stubs)
        if length <= limit:
            chosen.add(tool.name)
            limit -= length
    return chosen


def _listing(tools: Sequence[Tool], limit: int) -> str:
    """At most ``limit`` characters: tools with descriptions, or only names, or only groups."""
    forms = (form(tools) for form in (_lines, _groups, _counts))
    *_, last = listings = list(forms)
    return next((text for text in listings if len(text) <= limit), last[:limit])


def _lines(tools: Sequence[Tool]) -> str:
    """One line for each tool: its name and the beginning of its description."""
    return "\n".join(f"- {tool.python_name}: {_first_line(tool)}".rstrip(": ") for tool in tools)


def _groups(tools: Sequence[Tool]) -> str:
    """One line for each namespace, with the names of its tools."""
    return "\n".join(
        f"- {', '.join(tool.python_name for tool in members)}"
        for members in _by_group(tools).values()
    )


def _counts(tools: Sequence[Tool]) -> str:
    """One line for each namespace, with the number of its tools, the largest first."""
    groups = sorted(_by_group(tools).items(), key=lambda group: -len(group[1]))
    return "\n".join(
        f"- {len(members)} {name and f'of {name}'}: {members[0].python_name}, ..."
        for name, members in groups
    )


def _by_group(tools: Sequence[Tool]) -> dict[str, list[Tool]]:
    groups: dict[str, list[Tool]] = {}
    for tool in tools:
        name = next(
            (tool.name.rpartition(mark)[0] for mark in (".", "__", "/", ":") if mark in tool.name),
            "",
        )
        groups.setdefault(name, []).append(tool)
    return groups


def _first_line(tool: Tool) -> str:
    words = "".join(c if c.isprintable() else " " for c in tool.description[:400]).split()
    line = " ".join(words)
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 3]}..."


def _with_allowed(chat: ChatCompletionRequest, search: HostedTool) -> ChatCompletionRequest:
    """Allow the search function together with the functions that ``tool_choice`` allows."""
    choice = chat.tool_choice
    if not isinstance(choice, ToolChoice) or choice.allowed_tools is None:
        return chat
    entry = {"type": "function", "function": {"name": search.function_name}}
    allowed = choice.allowed_tools.model_copy(
        update={"tools": [*choice.allowed_tools.tools, entry]}
    )
    return chat.model_copy(
        update={"tool_choice": choice.model_copy(update={"allowed_tools": allowed})}
    )
