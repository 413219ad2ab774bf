"""Connections to upstreams: urllib3's, under the httpx2 client that the ``openai`` SDK sends with.

httpx2's own transport spends more on a chunk of a stream than all else here together. Where a proxy stands
between (the variable HTTPS_PROXY and the like), httpx2's own transport is used, which knows how to ask one.
Knows nothing of chats.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.request import getproxies

import httpx2
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from emulator.upstream.connections import Connection, new_pool

_END_SECONDS = 0.05
"""How long the end of a body may come after its last event."""
_PIECE = 64 * 1024


def client(timeout: httpx2.Timeout) -> httpx2.Client:
    """A client with the connections of this module, or with httpx2's where a proxy is to be asked."""
    if getproxies().keys() - {"no"}:
        return httpx2.Client(timeout=timeout)
    return _Client(timeout)


class _Client(httpx2.Client):
    """Goes past what httpx2 does for each request, and no stream needs: merging URLs, headers and cookies
    (an upstream's would go with other clients' requests), authorization, redirections.
    """

    def __init__(self, timeout: httpx2.Timeout) -> None:
        self._straight = Transport()
        super().__init__(timeout=timeout, transport=self._straight)
        self._own_headers = self.headers.multi_items()

    def build_request(
        self, method: str, url: httpx2.URL | str, *, headers: Any = None, **given: Any
    ) -> httpx2.Request:
        """As the base class; quick for what the SDK gives: bytes, and a list of headers in lower case."""
        content, timeout = given.pop("content", None), given.pop("timeout", None)
        if (
            any(given.values())
            or not (isinstance(url, str) and isinstance(content, bytes))
            or not (isinstance(headers, list) and isinstance(timeout, httpx2.Timeout))
        ):
            # What was not given has the base class's own default.
            named = {"content": content, "timeout": timeout, "headers": headers}
            given |= {name: value for name, value in named.items() if value is not None}
            return super().build_request(method, url, **given)
        where = parsed(url)
        names = {name for name, _ in headers}
        sent = [("host", where.netloc.decode("ascii")), ("content-length", str(len(content)))]
        return httpx2.Request(
            method,
            where,
            headers=[
                *(own for own in sent if own[0] not in names),
                *(own for own in self._own_headers if own[0] not in names),
                *headers,
            ],
            stream=httpx2.ByteStream(content),
            extensions={"timeout": timeout.as_dict()},
        )

    def send(
        self, request: httpx2.Request, *, stream: bool = False, **given: Any
    ) -> httpx2.Response:
        """As the base class; quick for streams."""
        if not stream or given or self.is_closed or request.url.userinfo:
            return super().send(request, stream=stream, **given)
        response = self._straight.handle_request(request)
        response.request = request
        return response


@lru_cache(maxsize=256)
def parsed(url: str) -> httpx2.URL:
    return httpx2.URL(url)


def shut_down(response: httpx2.Response) -> None:
    """Break the connection of an open answer, from any thread: a read that waits ends at once."""
    stream = response.extensions.get("network_stream")
    if isinstance(stream, _Body):
        stream.shut_down()
        return
    connection = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def body(response: httpx2.Response) -> Iterator[bytes]:
    """As the `iter_bytes` of httpx2, but an answer that is not compressed goes past what decodes."""
    stream = response.extensions.get("network_stream")
    if isinstance(stream, _Body) and "content-encoding" not in response.headers:
        return iter(stream)
    return response.iter_bytes()


def finish(response: httpx2.Response) -> None:
    """Read what little may follow the last event, so that the connection can serve the next request."""
    stream = response.extensions.get("network_stream")
    if isinstance(stream, _Body):
        stream.finish()


class Transport(httpx2.BaseTransport):
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str, int | None], urllib3.HTTPConnectionPool] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises the errors of httpx2's own transport."""
        timeout = request.extensions.get("timeout", {})
        body = request.read()
        try:
            answer = self._pool(request.url).urlopen(
                request.method,
                request.url.raw_path.decode("ascii"),
                body or None,
                {
                    name.decode("ascii"): value.decode("latin-1")
                    for name, value in request.headers.raw
                },
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(connect=timeout.get("connect"), read=timeout.get("read")),
                preload_content=False,
                decode_content=False,
            )
        except HTTPError as error:
            raise _as_httpx(error) from error
        stream = _Body(answer)
        return httpx2.Response(
            answer.status,
            headers=list(answer.headers.items()),
            stream=stream,
            extensions={"network_stream": stream},
        )

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _pool(self, url: httpx2.URL) -> urllib3.HTTPConnectionPool:
        place = (url.scheme, url.host, url.port)
        pool = self._pools.get(place)
        if pool is None:
            with self._lock:
                pool = self._pools.setdefault(place, new_pool(*place))
        return pool


class _Body(httpx2.SyncByteStream):
    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        connection = getattr(answer, "connection", None)
        self._connection = connection if isinstance(connection, Connection) else None
        self._straight: Callable[[], bytes] = bytes
        if self._connection is not None:
            self._connection.serve(self)
            self._straight = self._connection.answer.straight

    def __iter__(self) -> Iterator[bytes]:
        straight, read1 = self._straight, self._answer.read1
        try:
            while data := straight() or read1(_PIECE):
                yield data
        except HTTPError as error:
            raise _as_httpx(error) from error

    def close(self) -> None:
        self._answer.close()

    def finish(self) -> None:
        """Ends the body if its end comes at once; else nothing is lost but the connection."""
        with suppress(HTTPError, OSError, ValueError):
            if self._connection is not None and self._connection.wait_for(self, _END_SECONDS):
                self._answer.read1(_PIECE)

    def shut_down(self) -> None:
        if self._connection is not None:
            self._connection.shut_down(self)


def _as_httpx(error: HTTPError) -> httpx2.TransportError:
    match error:
        case ConnectTimeoutError() if not isinstance(error, NewConnectionError):
            return httpx2.ConnectTimeout(str(error))
        case ReadTimeoutError():
            return httpx2.ReadTimeout(str(error))
        case NewConnectionError() | SSLError():
            return httpx2.ConnectError(str(error.__cause__ or error))
    return httpx2.RemoteProtocolError(str(error))
