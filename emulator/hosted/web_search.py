"""Run the model's web searches through the provider of ``[web_search]``.

The vendors' tools ``web_search`` (all versions) become one function. Without a provider a search that the
client forces is refused, and otherwise the model is informed that it has no web access.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from emulator.core.errors import BadRequest
from emulator.core.protocol import ChatCompletionRequest, ToolChoice, validated
from emulator.hosted.hosted_tool import HostedResult, HostedTool, HostedTools, ended_call
from emulator.hosted.mcp_items import operators_server
from emulator.hosted.search_results import FoundPage, found_page, is_in_domains, result_text
from emulator.hosted.sessions import Sessions
from emulator.settings.redaction import redactor
from emulator.settings.settings import Settings
from emulator.settings.web_search_settings import WebSearchTable

NAME = "web_search"
_TYPE = re.compile(r"web_search(_preview)?(_20[\d_]+)?")
_MAX_REPLY_BYTES = 4 * 2**20
NO_WEB = (
    "There is no web access in this conversation. If the answer needs current information from the web, say "
    "that you cannot look it up."
)

Domains = Annotated[list[Annotated[str, StringConstraints(max_length=256)]], Field(max_length=100)]


class _Filters(BaseModel):
    allowed_domains: Domains | None = None
    blocked_domains: Domains | None = None


class _Item(BaseModel):
    """OpenAI has the domains in ``filters``, Anthropic in the tool itself."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    filters: _Filters | None = None
    allowed_domains: Domains | None = None
    blocked_domains: Domains | None = None
    max_uses: Annotated[int, Field(ge=1)] | None = None

    def allows(self, url: str) -> bool:
        filters = self.filters or _Filters()
        allowed = filters.allowed_domains or self.allowed_domains
        blocked = filters.blocked_domains or self.blocked_domains
        if allowed and not is_in_domains(url, allowed):
            return False
        return not (blocked and is_in_domains(url, blocked))


class WebSearch:
    """Offers the function ``web_search`` to requests that have such a tool. Safe to share between threads."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        """Raises `BadRequest` naming the place."""
        items = [
            (n, tool)
            for n, tool in enumerate(chat.tools or ())
            if isinstance(kind := tool.get("type"), str) and _TYPE.fullmatch(kind)
        ]
        options = (chat.model_extra or {}).get("web_search_options")
        if not items and not isinstance(options, Mapping):
            return HostedTools(types=frozenset())
        item = validated(_Item, items[0][1], f"tools[{items[0][0]}]") if items else _Item()
        table = self._settings.web_search
        if table is None:
            if is_forced(chat):
                raise BadRequest(
                    "tool_choice asks for a web search, but no provider is set here: see [web_search].",
                    "tool_choice",
                    "unsupported_tool",
                )
            return HostedTools(types=frozenset(), notice=NO_WEB)
        tool = HostedTool(_DEFINITION, "web_search", "", NAME, self._search(table, item, client))
        return HostedTools((tool,), types=frozenset(str(one["type"]) for _, one in items))

    def _search(
        self, table: WebSearchTable, item: _Item, client: str
    ) -> Callable[[dict[str, Any]], Future[HostedResult]]:
        uses = itertools.count(1)

        def start(arguments: dict[str, Any]) -> Future[HostedResult]:
            query = arguments["query"]
            if item.max_uses is not None and next(uses) > item.max_uses:
                return ended_call(HostedResult(f"max_uses is {item.max_uses}.", is_error=True))
            if table.mcp_tool is not None:
                label, name = table.mcp_tool
                address = operators_server(self._settings, label).address
                return self._sessions.call(address, client, label, {"name": name}, {"query": query})
            return self._sessions.start(_found, table, item, query)

        return start


def is_forced(chat: ChatCompletionRequest) -> bool:
    """Return True if ``tool_choice`` leaves no other choice than a web search."""
    choice = chat.tool_choice
    if isinstance(choice, ToolChoice):
        return _TYPE.fullmatch(choice.type) is not None
    types = [str(tool.get("type")) for tool in chat.tools or ()]
    return choice == "required" and all(map(_TYPE.fullmatch, types))


async def _found(table: WebSearchTable, item: _Item, query: str) -> HostedResult:
    import httpx2

    try:
        async with asyncio.timeout(table.timeout):
            found = await _PROVIDERS[table.provider](table, query)
    except TimeoutError:
        return HostedResult(f"The web search took longer than {table.timeout:g} s.", is_error=True)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        reason = redactor(table)(str(error)) or type(error).__name__
        return HostedResult(f"The web search failed: {reason[:300]}", is_error=True)
    allowed = [page for page in found if item.allows(page.url)]
    return HostedResult(result_text(allowed[: table.results]))


async def _fetch(table: WebSearchTable, method: str, **fields: Any) -> Any:
    """The provider's JSON. Raises an error of httpx2 or ValueError."""
    import httpx2

    async with (
        httpx2.AsyncClient(timeout=table.timeout) as http,
        http.stream(method, table.address, **fields) as reply,
    ):
        if reply.status_code != 200:
            raise ValueError(f"{table.provider} answered with status {reply.status_code}")
        body = b""
        async for piece in reply.aiter_bytes():
            body += piece
            if len(body) > _MAX_REPLY_BYTES:
                raise ValueError(f"{table.provider} sent more than {_MAX_REPLY_BYTES} bytes")
    return json.loads(body)


def _token(table: WebSearchTable) -> str:
    return table.token.get_secret_value() if table.token else ""


# Each provider's request and reply: its API reference.


async def _searxng(table: WebSearchTable, query: str) -> list[FoundPage]:
    headers = {"authorization": f"Bearer {_token(table)}"} if table.token else {}
    found = await _fetch(table, "GET", params={"q": query, "format": "json"}, headers=headers)
    return _pages(found, "content")


async def _brave(table: WebSearchTable, query: str) -> list[FoundPage]:
    headers = {"x-subscription-token": _token(table), "accept": "application/json"}
    found = await _fetch(table, "GET", params={"q": query[:400], "count": "20"}, headers=headers)
    web = found.get("web") if isinstance(found, dict) else found
    return _pages({"results": []} if web is None else web, "description")


async def _tavily(table: WebSearchTable, query: str) -> list[FoundPage]:
    headers = {"authorization": f"Bearer {_token(table)}"}
    found = await _fetch(table, "POST", json={"query": query, "max_results": 20}, headers=headers)
    return _pages(found, "content")


def _pages(found: Any, snippet: str) -> list[FoundPage]:
    """The pages in the list ``results`` of a provider's reply; what is no page is left out."""
    rows = found.get("results") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise ValueError("the reply has no list of results")
    rows = [row for row in rows if isinstance(row, dict)]
    pages = [found_page(row.get("url"), row.get("title"), row.get(snippet)) for row in rows]
    return [page for page in pages if page is not None]


_PROVIDERS: Mapping[str, Callable[[WebSearchTable, str], Awaitable[list[FoundPage]]]] = {
    "searxng": _searxng,
    "brave": _brave,
    "tavily": _tavily,
}

_PAGE = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("url", "title", "snippet")},
}
_DEFINITION: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Search the web. Name the url of each page that your answer relies on.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 1000}},
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
        "output_schema": {"type": "array", "items": _PAGE},
    },
}
