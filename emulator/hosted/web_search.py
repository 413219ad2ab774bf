"""Search the web by the provider of ``[web_search]``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from http.client import TOO_MANY_REQUESTS
from typing import Any

from emulator.core.events import HostedError
from emulator.hosted.hosted_tool import HostedResult
from emulator.hosted.search_results import FoundPage, found_page, result_text
from emulator.hosted.served_types import WebItem
from emulator.settings.redaction import redactor
from emulator.settings.web_search_settings import WebSearchTable

_MAX_REPLY_BYTES = 4 * 2**20


class _RateLimited(ValueError):
    pass


async def found(table: WebSearchTable, item: WebItem, query: str) -> HostedResult:
    """The pages that ``item`` allows; an error if the provider fails."""
    import httpx2

    try:
        async with asyncio.timeout(table.timeout):
            pages = await _PROVIDERS[table.provider](table, query)
    except TimeoutError:
        return HostedResult(f"The web search took longer than {table.timeout:g} s.", is_error=True)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        reason = redactor(table)(str(error)) or type(error).__name__
        code: HostedError = "too_many_requests" if isinstance(error, _RateLimited) else ""
        return HostedResult(
            f"The web search failed: {reason[:300]}", is_error=True, error_code=code
        )
    allowed = [page for page in pages if item.allows(page.url)]
    return HostedResult(result_text(allowed[: table.results]))


async def _fetch(table: WebSearchTable, method: str, **fields: Any) -> Any:
    """The provider's JSON. Raises an error of httpx2 or ValueError."""
    import httpx2

    async with (
        httpx2.AsyncClient(timeout=table.timeout) as http,
        http.stream(method, table.address, **fields) as reply,
    ):
        if reply.status_code != 200:
            kind = _RateLimited if reply.status_code == TOO_MANY_REQUESTS else ValueError
            raise kind(f"{table.provider} answered with status {reply.status_code}")
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
