"""urllib3's connections under httpx2: for the ``openai`` SDK's plain calls, and for what is passed on.

Where a proxy stands between (the variable HTTPS_PROXY and the like), httpx2's own transport is used, which
knows how to ask one. Knows nothing of chats, whose bytes go by `posts`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.request import getproxies

import httpx2
import urllib3
from urllib3.exceptions import HTTPError

from emulator.upstream.answers import StraightAnswer, as_httpx
from emulator.upstream.connections import new_pool


def proxied() -> bool:
    """Whether the environment names a proxy that is to be asked."""
    return bool(getproxies().keys() - {"no"})


def client(timeout: httpx2.Timeout) -> httpx2.Client:
    """A client with the connections of this module, or with httpx2's where a proxy is to be asked."""
    return httpx2.Client(timeout=timeout) if proxied() else _Client(timeout)


class _Client(httpx2.Client):
    """For streams it goes past what httpx2 does for each request: cookies (an upstream's would go with other
    clients' requests), authorization, redirections.
    """

    def __init__(self, timeout: httpx2.Timeout) -> None:
        self._straight = Transport()
        super().__init__(timeout=timeout, transport=self._straight)

    def send(
        self, request: httpx2.Request, *, stream: bool = False, **given: Any
    ) -> httpx2.Response:
        """As the base class; quick for streams."""
        if not stream or given or self.is_closed or request.url.userinfo:
            return super().send(request, stream=stream, **given)
        response = self._straight.handle_request(request)
        response.request = request
        return response


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
            raise as_httpx(error) from error
        stream = _Body(StraightAnswer(answer))
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
    def __init__(self, answer: StraightAnswer) -> None:
        self._answer = answer
        self.shut_down = answer.shut_down

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answer.more, b"")

    def close(self) -> None:
        self._answer.close()
