"""Show a model some of many tools; the others are listed, and a search function shows how to call them.

Every tool can be called all the time: only the prompt changes. What it shows depends on the tools and on
the conversation's beginning, so the prompt of a turn starts with the one before. What a search finds, here or
at the client, is a call's result, at the end. Knows nothing of fronts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import structlog

from emulator.conversation.call_policy import offered_tools, wire_names
from emulator.conversation.hosted_offer import offer_hosted_tools
from emulator.conversation.profiles import profile_of
from emulator.conversation.tool_search import found_stubs, search, search_tool
from emulator.core import json_codec
from emulator.core.protocol import ChatCompletionRequest, HistoryCall, Message, ToolChoice
from emulator.hosted.hosted_tool import HostedTool, HostedTools
from emulator.tools.stubs import escape_fences
from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset
from emulator.upstream.routes import Route

log = structlog.get_logger()

SEARCH_TYPE = "tool_search"
"""The type of the item in ``tools`` with which a client defers tools. With the ``execution`` ``client`` it
searches them itself, by a tool of its own."""
LOADED = "loaded"
"""The value of ``defer_loading`` of a tool that the client adds to the conversation: it is not listed."""
MAX_SHOWN = 20
"""Tools in the prompt, of those that the request's words find."""
_LISTING_TOKENS = 1_000
"""Of deferred tools, if there is no limit."""
_CHARACTERS = 4
"""In a token, about (`usage_counter.estimate_tokens`)."""
_MAX_LINE = 80
_STUB = re.compile(r"^def (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class DeferredTools:
    """The tools of a request that its prompt only lists."""

    names: frozenset[str]
    """Their names on the wire."""
    search: str
    """The name of the search function; "" if that is any of the client's."""
    listing: str = field(repr=False)
    """Their names, for the model: in several lines."""
    servers: Mapping[str, str] = field(repr=False)
    """Names of hosted tools -> the labels of their servers."""
    toolset: Toolset
    """All tools of the conversation, also those that the client removed since."""

    def shown(self, toolset: Toolset) -> Toolset:
        """The part of a toolset that the prompt shows in full."""
        return toolset.subset(tool for tool in toolset.tools if tool.name not in self.names)

    def stubs(self, toolset: Toolset) -> str:
        """What the model reads of the toolset."""
        lines = "".join(f"# {line}\n" for line in self.listing.splitlines())
        return self.shown(toolset).stubs + (f"\n{escape_fences(lines)}" if lines else "")

    def with_results(self, messages: Sequence[Message]) -> list[Message]:
        """The history, in which each search's result has the stubs of the tools that it found, and the place
        where the client adds tools theirs."""
        calls = {call.id: call for m in messages for call in m.tool_calls or ()}
        rendered = [*messages]
        for n, message in enumerate(messages):
            if message.found_tools is not None:
                text = self._result(message, calls.get(message.tool_call_id or ""))
                rendered[n] = message.model_copy(update={"content": text})
        return rendered

    def _result(self, message: Message, call: HistoryCall | None) -> str:
        toolset, names = self.toolset, {*(message.found_tools or ())}
        found = [tool for tool in toolset.tools if names & {tool.name, self.servers.get(tool.name)}]
        is_exact = found and names.isdisjoint(self.servers.values())
        if call and call.function and call.server_label == "" and not is_exact:  # it ran here
            searched = toolset.subset(tool for tool in toolset.tools if tool.name != self.search)
            return str(
                search(searched, _query(call.function.arguments), call.function.name).content
            )
        absent = "No function was found." if message.role == "tool" else ""
        texts = (message.text, found_stubs(toolset, found) if found else absent)
        return "\n\n".join(filter(None, texts))

    def native_tools(
        self, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]
    ) -> Iterator[Mapping[str, Any]]:
        """The definitions for an upstream that calls tools itself: of those shown and those found."""
        searches = {
            call.id
            for message in messages
            for call in message.tool_calls or ()
            if call.function and call.function.name == self.search
        }
        texts = [
            message.text
            for message in messages
            if message.found_tools is not None or message.tool_call_id in searches
        ]
        found = {
            tool.name
            for text in texts
            for name in _STUB.findall(text)
            if (tool := self.toolset.find(name))
        }
        for definition in tools:
            function = definition.get("function")
            name = function.get("name") if isinstance(function, Mapping) else None
            if name == self.search and isinstance(function, Mapping):
                described = f"{function.get('description') or ''}\n\n{self.listing}".strip()
                yield {**definition, "function": {**function, "description": described}}
            elif name not in self.names - found:
                yield definition


def tool_tokens(route: Route) -> int:
    """The longest stubs that a prompt shows to the route's model, in tokens; 0: no limit."""
    profile = profile_of(route.settings, route.model, route.description)
    for limit in (profile.tool_tokens, route.settings.tool_tokens):
        if limit is not None:
            return limit
    return route.listed_length // 4


def defer_tools(
    chat: ChatCompletionRequest, hosted: HostedTools, limit: int
) -> tuple[ChatCompletionRequest, HostedTools, DeferredTools | None]:
    """Defer the tools that the client defers, and others if their stubs are longer than ``limit`` tokens.

    Returns the request and its hosted tools with the search function. Raises `BadRequest`.
    """
    searches = [tool for tool in chat.tools or () if tool.get("type") == SEARCH_TYPE]
    if searches:
        hosted = replace(hosted, types=hosted.types | {SEARCH_TYPE})
    is_changed = chat.removed_tools or any(m.found_tools is not None for m in chat.messages)
    if not limit and not searches and not is_changed:
        return chat, hosted, None
    offered_search = next((tool for tool in searches if tool.get("execution") != "client"), None)
    toolset, policy = offered_tools(chat)
    deferrals = dict(_deferrals(chat.tools or ())) if searches else {}
    names = {tool.name for tool in toolset.tools if tool.name in deferrals}
    visible = toolset.subset(tool for tool in toolset.tools if tool.name not in names)
    tokens = len(visible.stubs) // _CHARACTERS
    is_long = limit and tokens > limit and len(visible.tools) > 1
    if is_long:
        shown = _best(visible, _beginning(chat.messages), limit * _CHARACTERS // 2)
        names |= {tool.name for tool in visible.tools} - shown - {SEARCH_TYPE}
    if policy.name is not None or not (names or is_changed):
        return chat, hosted, None
    name = SEARCH_TYPE if toolset.find(SEARCH_TYPE) else ""
    described = f"{name}(...)" if name else "a search"
    if is_long or offered_search:
        search = replace(
            search_tool(toolset, (offered_search or {}).get("name")), is_hidden=not offered_search
        )
        chat, own = offer_hosted_tools(chat, HostedTools((search,), types=frozenset()))
        [search] = own.tools
        chat = _with_allowed(chat, search)
        hosted = replace(hosted, tools=(*hosted.tools, search))
        name = search.function_name
        described = f"{name}(query=...)"
    shown_stubs = toolset.subset(tool for tool in toolset.tools if tool.name not in names).stubs
    remaining = (limit or _LISTING_TOKENS) * _CHARACTERS - len(shown_stubs)
    remaining = max(remaining, _LISTING_TOKENS * _CHARACTERS // 4)
    listed = [t for t in toolset.tools if t.name in names and deferrals.get(t.name) != LOADED]
    listing = ""
    if listed:
        heading = f"{len(listed)} more functions; {described} shows how to call them:"
        listing = f"{heading}\n{_listing(listed, remaining)}"
    log.info("tools deferred", tools=len(toolset.tools), deferred=len(names), limit=limit)
    servers = {tool.function_name: tool.server for tool in hosted.tools}
    toolset, _ = offered_tools(chat)
    deferred = DeferredTools(frozenset(names), name, listing, servers, toolset)
    removed = {
        t.name for t in toolset.tools if {t.name, servers.get(t.name)} & {*chat.removed_tools}
    }
    tools = [tool for tool in chat.tools or () if removed.isdisjoint(wire_names(tool))]
    return chat.model_copy(update={"tools": tools}), hosted, deferred


def _deferrals(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The name of each deferred tool, with the value of its ``defer_loading``."""
    for tool in tools:
        for kind in ("function", "custom"):
            described = tool.get(kind)
            if isinstance(described, Mapping) and described.get("defer_loading") in (True, LOADED):
                yield str(described.get("name")), described["defer_loading"]


def _query(arguments: str) -> str:
    try:
        parsed = json_codec.loads(arguments or "{}")
    except json_codec.NotJSON:
        return ""
    query = parsed.get("query") if isinstance(parsed, dict) else None
    return query if isinstance(query, str) else ""


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
