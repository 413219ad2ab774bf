"""HTTP without a client library in between: one request, and what a socket says."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any


def send(
    url: str, body: Any = None, headers: dict[str, str] | None = None, method: str | None = None
) -> tuple[int, dict[str, str], Any]:
    """Status, headers (lower case) and parsed body of one request; a body is JSON unless headers tell."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    kind = {} if body is None else {"content-type": "application/json"}
    request = urllib.request.Request(url, data, {**kind, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request) as response:
            status, raw, sent = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        status, raw, sent = error.code, error.read(), error.headers
    return status, {name.lower(): value for name, value in sent.items()}, json.loads(raw)


def read_until(connection: socket.socket, words: bytes) -> bytes:
    """All that comes until `words` have come. Raises AssertionError if the other side ends before."""
    read = b""
    while words not in read:
        data = connection.recv(65536)
        assert data, f"{words!r} not in {read!r}"
        read += data
    return read
