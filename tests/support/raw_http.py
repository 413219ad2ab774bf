"""HTTP without a client library in between: requests, their bytes, and what a socket receives."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def fetch(
    url: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower case) and body of one request, whose body is JSON unless it is bytes."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    kind = {} if body is None else {"content-type": "application/json"}
    request = urllib.request.Request(url, data, {**kind, **(headers or {})}, method=method)
    try:
        with _OPENER.open(request) as response:
            status, raw, received = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        status, raw, received = error.code, error.read(), error.headers
    return status, {name.lower(): value for name, value in received.items()}, raw


def send(
    url: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> tuple[int, dict[str, str], Any]:
    """As `fetch`, with the response's JSON parsed."""
    status, received, raw = fetch(url, body, headers, method)
    return status, received, json.loads(raw)


def read_page(url: str, key: str = "") -> str:
    """The text at ``url``, such as /metrics, for who has ``key``."""
    status, _, raw = fetch(url, None, {"authorization": f"Bearer {key}"} if key else None)
    assert status == 200, raw
    return raw.decode()


def post_bytes(path: str, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a request whose body is JSON, or bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"host": "localhost", "content-type": "application/json"}
    fields |= {"content-length": str(len(data)), **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def connect(url: str, data: bytes = b"") -> socket.socket:
    """A connection to the server at ``url``, on which ``data`` has been sent."""
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=120)
    connection.sendall(data)
    return connection


def read_until(connection: socket.socket, words: bytes) -> bytes:
    """All that comes until `words` have come. Raises AssertionError if the other side ends before."""
    read = b""
    while words not in read:
        data = connection.recv(65536)
        assert data, f"{words!r} not in {read!r}"
        read += data
    return read
