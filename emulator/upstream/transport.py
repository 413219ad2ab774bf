"""Send requests to one upstream and read its responses, over connections that are kept alive (urllib3).

Chats, model lists, probes and passed-on requests all use a `Transport`. Where the environment names a proxy
(HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, but not for a host in NO_PROXY) requests go through it. Knows nothing of
what requests and responses mean. All failures are urllib3's `HTTPError`; see `failures`.

A connection is *idle* (in its pool), *reading* (one response owns it) or *closed*:

    idle -> reading        a request takes it from the pool; it was idle for at most `_IDLE_SECONDS`
    reading -> idle        the body was read to its end, by `read` or by `read_end`
    reading -> closed      the response is closed earlier, fails, or is shut down

`UpstreamResponse.shut_down` may be called from any thread at any time. It must only end the connection while
its own response owns it: a moment later the connection may serve another client. `_Connection.lock` guards
that change of owner. It ends the *socket* that the response was read from, since `http.client` forgets the
connection's own as soon as a head says ``connection: close``.
"""

from __future__ import annotations

import http.client
import math
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

from emulator.client_disconnect import stop_on_disconnect
from emulator.errors import UpstreamFailed
from emulator.upstream.chunked import BadChunk, ChunkedDecoder
from emulator.upstream.failures import without_password

_IDLE_SECONDS = 4.0
"""Uvicorn closes an idle connection after 5 s: a request that is sent at that moment is lost."""
_MAX_IDLE = 256
_END_SECONDS = 0.05
"""How long `UpstreamResponse.read_end` waits."""
_READ_SIZE = 64 * 1024
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


class UpstreamResponse:
    """An open response of any status. Must be closed; a body that was read to its end is closed already."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names match in any case."""
        self._response = response
        self._connection = response.connection
        self._raw = self._connection.reading if isinstance(self._connection, _Connection) else None
        self._is_encoded = "content-encoding" in response.headers

    def read(self) -> bytes:
        """Return the bytes that have arrived, after waiting for some; b"" at the end. Raises `HTTPError`."""
        raw = self._raw
        if raw is None or self._is_encoded or not raw.chunked or raw.isclosed():
            return self._response.read1(_READ_SIZE, decode_content=self._is_encoded)
        # Fast path for streams of events: urllib3's own layers take a fifth of a chat's CPU.
        try:
            data = raw.read1(_READ_SIZE)
        except (OSError, http.client.HTTPException) as error:
            self.shut_down()
            self.close()
            if isinstance(error, TimeoutError):
                raise ReadTimeoutError(None, None, "Read timed out.") from error  # type: ignore[arg-type]
            raise ProtocolError(f"Connection broken: {error!r}", error) from error
        if raw.isclosed():
            self._response.release_conn()
        return data

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.read, b"")

    def read_at_most(self, size: int, until: float) -> bytes:
        """Read and close. Stops at ``until`` (monotonic), or when at least ``size`` bytes have arrived.

        Raises `HTTPError`.
        """
        data = b""
        with closing(self):
            while len(data) < size and (remaining := until - time.monotonic()) > 0:
                self._limit_read(remaining)
                try:
                    piece = self.read()
                except ReadTimeoutError:
                    if time.monotonic() < until:
                        raise
                    break
                if not piece:
                    break
                data += piece
        return data

    def read_end(self) -> None:
        """Read what follows the last event, so that the connection can serve the next request.

        Does not wait if the end is late: then only the connection is lost.
        """
        with suppress(HTTPError):
            self._limit_read(_END_SECONDS)
            self.read()

    def limit_read(self, seconds: float) -> None:
        """Set how long each further read may wait."""
        if self._raw is not None and not self._raw.isclosed():
            self._raw.socket.settimeout(seconds)

    def _limit_read(self, seconds: float) -> None:
        # A raw response that is closed no longer owns the connection.
        if self._raw is not None and not self._raw.isclosed():
            limit = self._raw.socket.gettimeout()
            self._raw.socket.settimeout(seconds if limit is None else min(seconds, limit))

    def shut_down(self) -> None:
        """End the connection, from any thread: a waiting `read` returns or raises immediately."""
        if isinstance(self._connection, _Connection):
            self._connection.shut_down(self._raw)

    def close(self) -> None:
        self._response.close()


class Transport:
    """Sends requests to the server of ``base_url``. Safe to share between threads."""

    def __init__(self, base_url: str, connect_seconds: float, read_seconds: float) -> None:
        """``read_seconds`` limits each read. A name and password in ``base_url`` go with each request."""
        self._timeout = urllib3.Timeout(connect=connect_seconds, read=read_seconds)
        self._manager = _manager(base_url)
        self._authorization = urllib3.make_headers(basic_auth=_name_and_password(base_url))

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        read_seconds: float | None = None,
    ) -> UpstreamResponse:
        """Return the response once its head has arrived. Redirections are not followed.

        ``url`` must not contain a password. Raises `HTTPError`.
        """
        timeout = self._timeout
        if read_seconds is not None:
            timeout = urllib3.Timeout(connect=timeout.connect_timeout, read=read_seconds)
        sent = {**headers, **self._authorization}
        if self._manager.proxy is not None:
            # ProxyManager adds these under its own spelling, next to any other.
            for name in {"accept", "host"} & sent.keys():
                sent[name.title()] = sent.pop(name)
        response = self._manager.urlopen(
            method,
            url,
            redirect=False,
            body=body or None,
            headers=sent,
            retries=False,
            timeout=timeout,
            preload_content=False,
        )
        return UpstreamResponse(response)

    def close(self) -> None:
        """Close the idle connections."""
        pools = self._manager.pools
        for key in pools.keys():  # noqa: SIM118 - it cannot be iterated itself
            if (pool := pools.get(key)) is not None:
                pool.close()
        self._manager.clear()


class _RawResponse(http.client.HTTPResponse):
    """Reads all chunks of a chunked body that have arrived, where ``http.client`` reads one."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.socket = sock
        self._decoder = ChunkedDecoder()
        self._read: Callable[[int], bytes] = self.fp.read1
        """The next read: first from the buffer, which may hold more than the head, then from the socket."""

    def read1(self, n: int = -1) -> bytes:
        """As the base class. urllib3 calls it for each `UpstreamResponse.read`."""
        if not self.chunked or self.isclosed() or self.length == 0:  # 0: of a HEAD request
            return super().read1(n)
        content = b""
        while not content and not self._decoder.ended:
            data = self._read(_READ_SIZE)
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
                with suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
            self.close()
        return content


class _Connection(HTTPConnection):
    """Knows which response owns it, and since when it has been idle."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lock = threading.Lock()
        self.reading: _RawResponse | None = None
        self._idle_since: float | None = None

    def response_class(self, *args: Any, **options: Any) -> _RawResponse:  # type: ignore[override]
        """``http.client`` calls this before it reads a head."""
        response = _RawResponse(*args, **options)
        with self.lock:
            self.reading, self._idle_since = response, None
        return response

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as in urllib3
        """As the base class; fails as soon as the client disconnects."""
        sock = self.sock

        def stop() -> None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

        with stop_on_disconnect(stop):
            return super().getresponse()

    def set_idle(self) -> None:
        """The connection returns to its pool, and may serve others."""
        with self.lock:
            self.reading, self._idle_since = None, time.monotonic()

    def shut_down(self, response: _RawResponse | None) -> None:
        """End the connection if ``response`` still owns it."""
        with self.lock:
            if response is not None and self.reading is response:
                with suppress(OSError):
                    response.socket.shutdown(socket.SHUT_RDWR)

    @property
    def is_connected(self) -> bool:
        """False closes an idle connection before it is used again."""
        since = self._idle_since
        if since is not None and time.monotonic() - since > _IDLE_SECONDS:
            return False
        return super().is_connected


class _KernelTimeoutSocket(socket.socket):
    """Leaves timeouts to the kernel: with Python's own, each read and write takes a second system call."""

    def __init__(self, connected: socket.socket) -> None:
        self._seconds = connected.gettimeout()
        # The values that the kernel has; at first none, which equals nothing.
        self._read_seconds: float | None = math.nan
        self._write_seconds: float | None = math.nan
        family, kind, protocol = connected.family, connected.type, connected.proto
        super().__init__(family, kind, protocol, connected.detach())
        super().settimeout(None)

    def gettimeout(self) -> float | None:
        return self._seconds

    def settimeout(self, value: float | None) -> None:
        self._seconds = value

    def recv_into(self, *args: Any, **options: Any) -> int:
        if self._read_seconds != self._seconds:
            self._read_seconds = self._set_option(socket.SO_RCVTIMEO)
        try:
            return super().recv_into(*args, **options)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def recv(self, *args: Any, **options: Any) -> bytes:
        if self._read_seconds != self._seconds:
            self._read_seconds = self._set_option(socket.SO_RCVTIMEO)
        try:
            return super().recv(*args, **options)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def sendall(self, *args: Any, **options: Any) -> None:
        if self._write_seconds != self._seconds:
            self._write_seconds = self._set_option(socket.SO_SNDTIMEO)
        try:
            super().sendall(*args, **options)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def _set_option(self, option: int) -> float | None:
        # 0 means no limit.
        micros = 0 if self._seconds is None else max(1, int(self._seconds * 1_000_000))
        self.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", *divmod(micros, 1_000_000)))
        return self._seconds


class _PlainConnection(_Connection):
    def _new_conn(self) -> socket.socket:
        return _KernelTimeoutSocket(super()._new_conn())


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _IdleConnections(queue.LifoQueue[Any]):
    """The queue of a pool. It fills itself with None at first."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if isinstance(item, _Connection):
            item.set_idle()
        super().put(item, block, timeout)


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection
    QueueCls = _IdleConnections


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection
    QueueCls = _IdleConnections


def _manager(base_url: str) -> urllib3.PoolManager:
    """Pools of connections, through the proxy if the environment names one for this host."""
    options: dict[str, Any] = {"maxsize": _MAX_IDLE, "socket_options": _SOCKET_OPTIONS}
    proxy = _proxy_url(base_url)
    if base_url.startswith("https:") or proxy.startswith("https:"):
        options["ssl_context"] = httpx2.create_ssl_context()
    if not proxy:
        manager = urllib3.PoolManager(**options)
    elif urlsplit(proxy).scheme in ("http", "https"):
        manager = urllib3.ProxyManager(
            proxy,
            proxy_headers=urllib3.make_headers(proxy_basic_auth=_name_and_password(proxy)),
            proxy_ssl_context=options.get("ssl_context"),
            **options,
        )
    else:
        raise UpstreamFailed(
            f"The proxy {without_password(proxy)} that the environment names for "
            f"{without_password(base_url)} is not supported: its URL must begin with http:// or https://."
        )
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return manager


def _proxy_url(base_url: str) -> str:
    """The URL of the proxy for the host of ``base_url``; "" if there is none."""
    parts = urlsplit(base_url)
    if any(map(proxy_bypass, (parts.netloc.rpartition("@")[2], parts.hostname or ""))):
        return ""
    proxies = getproxies()
    url = proxies.get(parts.scheme) or proxies.get("all") or ""
    return url if not url or "://" in url else f"http://{url}"


def _name_and_password(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}"
