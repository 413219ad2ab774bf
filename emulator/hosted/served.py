"""Offer the types of tools that vendors host, as the operator serves them: by an MCP tool, or a provider.

A request's ``{"type": "web_search"}`` becomes one function, whose calls run there (`served_types`). A type
that nobody serves is not offered; of a web search the model is told so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from typing import Any

from emulator.core.client_keys import grant_of
from emulator.core.errors import BadRequest, ClientDisconnected
from emulator.core.events import HostedError
from emulator.core.protocol import ChatCompletionRequest, ToolChoice, validated
from emulator.hosted import web_search
from emulator.hosted.address import ServerAddress, ServerFailed
from emulator.hosted.hosted_tool import (
    AwaitedTask,
    HostedResult,
    HostedTool,
    HostedTools,
    ended_call,
)
from emulator.hosted.listing import hints
from emulator.hosted.mcp_items import OfferedServer, operators_server
from emulator.hosted.served_types import (
    SERVED,
    FileItem,
    Item,
    ServedType,
    WebItem,
    server_arguments,
)
from emulator.hosted.sessions import Sessions
from emulator.hosted.url_sources import URLSources
from emulator.settings.mcp_settings import CLIENT_HEADER, CLIENT_VARIABLE
from emulator.settings.serve_settings import FileSearchRow, ServeRow
from emulator.settings.settings import Settings

NO_WEB = (
    "There is no web access in this conversation. If the answer needs current information from the web, say "
    "that you cannot look it up."
)

Start = Callable[[dict[str, Any]], Future[HostedResult]]


class ServedTypes:
    """Safe to share between threads."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        """Raises `BadRequest` naming the place."""
        tools: list[HostedTool] = []
        types: set[str] = set()
        notice, ignored = "", list[str]()
        for name, served in SERVED.items():
            items = {
                f"tools[{n}]": tool
                for n, tool in enumerate(chat.tools or ())
                if isinstance(kind := tool.get("type"), str) and served.types.fullmatch(kind)
            }
            kinds = {str(item["type"]) for item in items.values()}
            if name == "web_search":
                items |= _search_options(chat)
            if not items:
                continue
            place, sent = next(iter(items.items()))
            item = validated(served.item, sent, place)
            if isinstance(item, WebItem) and item.url_sources:
                _check_named(item.url_sources, chat, place)
            if (tool := self._tool(name, served, item, place, client)) is not None:
                tools.append(tool)
                row = self._settings.serve.rows.get(name)
                unused = item.without_effect(sent, row.names if row else ())
                ignored += [f"{name}.{each}" for each in unused]
                types |= kinds | _chosen_type(chat, served)
            elif name == "web_search":
                _check_not_forced(chat)
                notice = NO_WEB
        return HostedTools(
            tuple(tools), types=frozenset(types), notice=notice, ignored=tuple(ignored)
        )

    def _tool(
        self, name: str, served: ServedType, item: Item, place: str, client: str
    ) -> HostedTool | None:
        row = self._settings.serve.rows.get(name)
        table = self._settings.web_search
        if row is not None and self._settings.mcp[row.server].may_use(grant_of(client).name):
            server = operators_server(self._settings, row.server)
            item = _with_stores(row, item, place, client)
            tool = self._by_server(served, row, item, _address(server, row, client), client)
            asks = self._asks(server, row.tool_name, client)
            sources = item.url_sources if isinstance(item, WebItem) else None
            return replace(tool, needs_approval=asks, url_sources=sources)
        if name == "web_search" and table is not None:
            start = _limited(served, item, self._by_provider(item))
            return HostedTool(served.definition(None), served.kind, "", name, start)
        return None

    def _by_provider(self, item: Any) -> Start:
        return lambda arguments: self._sessions.start(
            web_search.found, self._settings.web_search, item, arguments["query"]
        )

    def _by_server(
        self, served: ServedType, row: ServeRow, item: Item, address: ServerAddress, client: str
    ) -> HostedTool:
        place = (address, client, row.server, {"name": row.tool_name})

        def read(result: HostedResult) -> HostedResult:
            return result if result.is_error or result.task else served.read(row, item, result)

        async def run(arguments: dict[str, Any]) -> HostedResult:
            own = server_arguments(row, item, arguments, client)
            return read(await self._sessions.make_call(*place, own))

        async def resume(task: AwaitedTask) -> HostedResult:
            return read(await self._sessions.task_result(*place, task))

        return HostedTool(
            served.definition(row),
            served.kind,
            row.server,
            served.kind,
            _limited(served, item, partial(self._sessions.start, run)),
            partial(self._sessions.start, resume),
        )

    def _asks(self, server: OfferedServer, name: str, client: str) -> bool:
        """Whether a call waits for approval. Rules that use hints need the server's list."""
        listed: Mapping[str, Any] = {}
        if server.own_list:
            try:
                tools = self._sessions.tools(server.address, client).result().tools
                listed = next((tool for tool in tools if tool["name"] == name), {})
            except ServerFailed:
                pass
            except CancelledError:
                raise ClientDisconnected("The client has disconnected.") from None
        return server.asks(name, hints(listed))


def _address(server: OfferedServer, row: ServeRow, client: str) -> ServerAddress:
    """The server's address, which names the client if the server separates clients."""
    address = server.address
    if row.scope != "client":
        return address
    if address.url:
        return replace(address, headers=(*address.headers, (CLIENT_HEADER, client)))
    return replace(address, env=(*address.env, (CLIENT_VARIABLE, client)))


def _with_stores(row: ServeRow, item: Item, place: str, client: str) -> Item:
    """The item with the vector stores that are searched: its own, or all that the operator lets the client
    search. Raises `BadRequest` for others, and if there are none."""
    if not (isinstance(row, FileSearchRow) and isinstance(item, FileItem)):
        return item
    allowed = row.stores_of(grant_of(client).name)
    for n, one in enumerate(item.vector_store_ids):
        if one not in allowed:
            where = f"{place}.vector_store_ids[{n}]"
            raise BadRequest(f"{where}: there is no vector store {one[:64]!r} here.", where)
    if row.vector_store_ids and not allowed:
        where = f"{place}.vector_store_ids"
        raise BadRequest(f"{where}: there is no vector store for this key.", where)
    return item.model_copy(update={"vector_store_ids": item.vector_store_ids or allowed})


def _check_named(sources: URLSources, chat: ChatCompletionRequest, place: str) -> None:
    """Raises `BadRequest` for a name of a tool that the request does not have."""
    tools = chat.tools or ()
    declared = [one.get("name") or (one.get("function") or {}).get("name") for one in tools]
    for field, name in sources.named_tools():
        if name not in declared:
            where = f"{place}.{field}"
            raise BadRequest(f"{where}: the request has no tool {name[:64]!r}.", where)


def _limited(served: ServedType, item: Item, run: Start) -> Start:
    """The calls of one answer, at most ``max_uses``, that the item allows."""
    uses = itertools.count(1)

    def start(arguments: dict[str, Any]) -> Future[HostedResult]:
        text = str(arguments[served.parameter])
        if len(text) > served.most_chars:
            problem = f"The {served.parameter} is longer than {served.most_chars} characters."
            return _refused(problem, served.too_long)
        if served.kind == "web_fetch" and isinstance(item, WebItem) and not item.allows(text):
            problem = "The domain of this URL is not allowed in this request."
            return _refused(problem, "url_not_allowed")
        if item.max_uses is not None and next(uses) > item.max_uses:
            return _refused(f"max_uses is {item.max_uses}.", "max_uses_exceeded")
        return run(arguments)

    return start


def _refused(problem: str, code: HostedError) -> Future[HostedResult]:
    return ended_call(HostedResult(problem, is_error=True, error_code=code))


def _search_options(chat: ChatCompletionRequest) -> dict[str, dict[str, Any]]:
    """Chat's own field for a web search, by its place."""
    name = "web_search_options"
    options = (chat.model_extra or {}).get(name)
    return {name: options} if isinstance(options, dict) else {}


def _chosen_type(chat: ChatCompletionRequest, served: ServedType) -> set[str]:
    """The type in ``tool_choice``, which may be another version's than that of the tool."""
    choice = chat.tool_choice
    is_chosen = isinstance(choice, ToolChoice) and served.types.fullmatch(choice.type)
    return {choice.type} if isinstance(choice, ToolChoice) and is_chosen else set()


def _check_not_forced(chat: ChatCompletionRequest) -> None:
    """Raises `BadRequest` if ``tool_choice`` leaves no other choice than a web search."""
    pattern, choice = SERVED["web_search"].types, chat.tool_choice
    if isinstance(choice, ToolChoice):
        is_forced = pattern.fullmatch(choice.type) is not None
    else:
        kinds = [str(tool.get("type")) for tool in chat.tools or ()]
        is_forced = choice == "required" and all(map(pattern.fullmatch, kinds))
    if is_forced:
        raise BadRequest(
            "tool_choice asks for a web search, but nobody searches here: see [web_search] and [serve].",
            "tool_choice.type" if isinstance(choice, ToolChoice) else "tool_choice",
            "unsupported_tool",
        )
