"""A proxy whose inspector is looked at, over HTTP as a browser does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from emulator.traces import Traces
from tests.support.tools import GET_WEATHER

HELLO: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
Fetched = tuple[int, dict[str, str], str]


class Inspected:
    """``url`` of a proxy, and the ``traces`` that it keeps."""

    def __init__(self, url: str, traces: Traces) -> None:
        self.url = url
        self.traces = traces

    def get(self, path: str, **headers: str) -> Fetched:
        """Status, headers (lower case) and text."""
        return self._send(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Fetched:
        sent = {"content-type": "application/json", **headers}
        data = json.dumps(body or {}).encode()
        return self._send(urllib.request.Request(self.url + path, data, sent))

    def _send(self, request: urllib.request.Request) -> Fetched:
        try:
            with urllib.request.urlopen(request) as response:
                status, response_headers, text = (
                    response.status,
                    response.headers,
                    response.read().decode(),
                )
        except urllib.error.HTTPError as error:
            status, response_headers, text = error.code, error.headers, error.read().decode()
        return status, {name.lower(): value for name, value in response_headers.items()}, text

    def ask(self, key: str = "any", **fields: Any) -> str:
        """Ask for a chat completion, and give the id of the request once it is over."""
        body = {"model": "m", "messages": HELLO, "tools": [GET_WEATHER], **fields}
        headers = {"authorization": f"Bearer {key}"}
        _, response_headers, _ = self.post("/v1/chat/completions", body, **headers)
        trace = self.traces.get(response_headers["x-request-id"])
        assert trace is not None
        while trace.seconds is None:
            self.traces.wait(self.traces.version, 60)
        return trace.id
