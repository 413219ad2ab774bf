"""Connections to upstreams: who owns one, and how it ends when its client disconnects.

A connection is *idle* (in its pool), *reading* (one response owns it) or *closed*:

    idle -> reading        a request takes it from the pool; it was idle for at most `_IDLE_SECONDS`
    reading -> idle        the body was read to its end, by `read` or by `read_end`
    reading -> closed      the response is closed earlier, fails, or is shut down

While a connection is established and a request is sent, the client's disconnect ends it too; only the
resolution of a name cannot be interrupted.

`UpstreamResponse.shut_down` may be called from any thread at any time. It must only end the connection while
its own response owns it: a moment later the connection may serve another client. `UpstreamConnection.lock`
guards that change of owner. It ends the *socket* that the response was read from, since `http.client`
forgets the connection's own as soon as a head says ``connection: close``.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.wait import wait_for_write

from emulator.core.client_disconnect import has_disconnected, stop_on_disconnect
from emulator.upstream.chunked import BadChunk, ChunkedDecoder

READ_SIZE = 64 * 1024
_IDLE_SECONDS = 4.0
"""Uvicorn closes an idle connection after 5 s: a request that is sent at that moment is lost."""
_CHECK_SECONDS = 0.25
"""How often a connection that is being established looks whether its client has disconnected."""
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


def _shut_down(sock: socket.socket | None) -> None:
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _connect(host: str, port: int, seconds: float | None) -> socket.socket:
    """Connect to the first address of ``host`` that accepts; ``seconds`` for each. Raises OSError."""
    assert seconds is not None
    failure = OSError("the name has no address")
    addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    for *kind, _, address in addresses:
        try:
            sock = socket.socket(*kind)
        except OSError as error:  # IPv6 is off
            failure = error
            continue
        try:
            _wait_until_connected(sock, address, seconds)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _wait_until_connected(sock: socket.socket, address: Any, seconds: float) -> None:
    """Raises OSError, also soon after the client has disconnected."""
    until = time.monotonic() + seconds
    for option in _SOCKET_OPTIONS:
        sock.setsockopt(*option)
    sock.setblocking(False)
    code = sock.connect_ex(address)
    while code == errno.EINPROGRESS:
        if has_disconnected():
            raise ConnectionAbortedError("the client disconnected")
        remaining = until - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        if wait_for_write(sock, timeout=min(remaining, _CHECK_SECONDS)):
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    sock.settimeout(seconds)


class RawResponse(http.client.HTTPResponse):
    """Reads all chunks of a chunked body that have arrived, where ``http.client`` reads one."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.socket = sock
        self._decoder = ChunkedDecoder()
        self._read: Callable[[int], bytes] = lambda _: self.fp.read1()
        """The next read: first the whole buffer, which may hold more than the head, and more than `READ_SIZE`
        since Python 3.14; then from the socket."""

    def read1(self, n: int = -1) -> bytes:
        """As the base class. urllib3 calls it for each `UpstreamResponse.read`."""
        if not self.chunked or self.isclosed() or self.length == 0:  # 0: of a HEAD request
            return super().read1(n)
        content = b""
        while not content and not self._decoder.ended:
            data = self._read(READ_SIZE)
            self._read = self.socket.recv
            try:
                if data:
                    content = self._decoder.feed(data)
                else:
                    self._decoder.close()
            except BadChunk as error:
                raise http.client.HTTPException(str(error)) from error
        if self._decoder.ended:
            if self._decoder.rest:  # the next request would take it for its response
                _shut_down(self.socket)
            self.close()
        return content


class UpstreamConnection(HTTPConnection):
    """Knows which response owns it, and since when it has been idle."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lock = threading.Lock()
        self.reading: RawResponse | None = None
        self._idle_since: float | None = None

    def response_class(self, *args: Any, **options: Any) -> RawResponse:  # type: ignore[override]
        """``http.client`` calls this before it reads a head."""
        response = RawResponse(*args, **options)
        with self.lock:
            self.reading, self._idle_since = response, None
        return response

    def connect(self) -> None:
        """As the base class; fails as soon as the client disconnects, also in a TLS handshake."""
        with ExitStack() as self._establishing:
            super().connect()

    def _new_conn(self) -> socket.socket:
        """As the base class; fails soon after the client has disconnected."""
        try:
            sock = _connect(self._dns_host, self.port, self.timeout)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "no connection within the time allowed") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: no name, as "a..b"
            raise NewConnectionError(self, str(error)) from error
        # TLS takes the descriptor away from this socket: the copy ends the same connection.
        copy = self._establishing.enter_context(sock.dup())
        self._establishing.enter_context(stop_on_disconnect(partial(_shut_down, copy)))
        return sock

    def request(self, *args: Any, **options: Any) -> None:
        """As the base class; fails as soon as the client disconnects, also if the server reads nothing."""
        with stop_on_disconnect(lambda: _shut_down(self.sock)):
            super().request(*args, **options)

    def send(self, data: Any) -> None:
        """As the base class, in pieces: the time limit of a socket is one for each piece."""
        for start in range(0, len(data), READ_SIZE):
            super().send(data[start : start + READ_SIZE])

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as in urllib3
        """As the base class; fails as soon as the client disconnects."""
        with stop_on_disconnect(partial(_shut_down, self.sock)):
            return super().getresponse()

    def set_idle(self) -> None:
        """The connection returns to its pool, and may serve others."""
        with self.lock:
            self.reading, self._idle_since = None, time.monotonic()

    def shut_down(self, response: RawResponse | None) -> None:
        """End the connection if ``response`` still owns it."""
        with self.lock:
            if response is not None and self.reading is response:
                _shut_down(response.socket)

    @property
    def is_connected(self) -> bool:
        """False closes an idle connection before it is used again."""
        since = self._idle_since
        if since is not None and time.monotonic() - since > _IDLE_SECONDS:
            return False
        return super().is_connected


class SecureConnection(UpstreamConnection, HTTPSConnection):
    pass
