"""A proxy whose inspector tests read over HTTP, as a browser does."""

from __future__ import annotations

import html
import re
from typing import Any

from emulator.traces import Archive, Trace
from emulator.web.services import RecordedRequests
from tests.support.processes import wait_until
from tests.support.raw_http import fetch
from tests.support.tools import GET_WEATHER

HELLO: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
Fetched = tuple[int, dict[str, str], str]


def stored(reader: Archive) -> list[Trace]:
    """The newest requests of all clients, the newest first."""
    found = [reader.get(row.id) for row in reader.page({}, None).rows]
    return [trace for trace in found if trace is not None]


def shown(page: str) -> str:
    """The text of a page, without markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


class Inspected:
    """``url`` of a proxy, and the ``requests`` that it records."""

    def __init__(self, url: str, requests: RecordedRequests) -> None:
        self.url = url
        self.requests = requests

    def get(self, path: str, **headers: str) -> Fetched:
        """Status, headers (lower case) and text."""
        return self._fetch(path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Fetched:
        return self._fetch(path, body or {}, headers)

    def _fetch(self, path: str, body: Any, headers: dict[str, str]) -> Fetched:
        status, received, raw = fetch(self.url + path, body, headers)
        return status, received, raw.decode()

    def ask(self, key: str = "any", **fields: Any) -> str:
        """Ask for a chat completion, and give the id of the request once it is over."""
        body = {"model": "m", "messages": HELLO, "tools": [GET_WEATHER], **fields}
        headers = {"authorization": f"Bearer {key}"}
        _, response_headers, _ = self.post("/v1/chat/completions", body, **headers)
        key = response_headers["x-request-id"]
        wait_until(lambda: bool((trace := self.requests.reader.get(key)) and trace.seconds))
        return key
