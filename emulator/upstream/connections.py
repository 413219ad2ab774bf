"""urllib3's connections and pools, as streams of many small pieces want them.

A request leaves in one piece; a read takes one system call, which gives all that has come; a connection that
has been idle for long is not used again. Knows nothing of httpx2.
"""

from __future__ import annotations

import http.client
import math
import queue
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

import httpx2
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from emulator.upstream.chunked import BadChunk, ChunkedDecoder

_IDLE_SECONDS = 4.0
"""Uvicorn closes an idle connection after 5: what is sent at that moment is lost."""
_MAX_IDLE = 256
_PIECE = 16 * 1024
_JOINED = 64 * 1024
"""A larger body is not copied to stand behind its head."""
_recv = socket.socket.recv
_KEEP_ALIVE: list[tuple[int, int, int]] = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


class Answer(http.client.HTTPResponse):
    """Of a chunked body it reads not one chunk, but all that have come."""

    def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self._connected = sock
        self._decoder = ChunkedDecoder()
        self._failure: Exception | None = None
        self._drained = False
        """What was read ahead with the head has been given."""

    def straight(self) -> bytes:
        """As `read1`, for who need not go through urllib3 for each piece of a chunked body.

        b"" where urllib3 is to be asked: it knows what is to be done at the end, and when something is wrong.
        """
        if not self.chunked or self.fp is None:
            return b""
        try:
            return self._more(self.fp)
        except (OSError, http.client.HTTPException) as error:
            self._failure = error
            return b""

    def read1(self, n: int = -1) -> bytes:
        if not self.chunked or self.fp is None:
            return super().read1(n)
        if self._failure is not None:
            raise self._failure
        content = self._more(self.fp)
        if self._decoder.ended:
            if self._decoder.rest:  # it would be taken for the next answer
                with suppress(OSError):
                    self._connected.shutdown(socket.SHUT_RDWR)
            self.close()
        return content

    def _more(self, read_ahead: Any) -> bytes:
        content = b""
        decoder = self._decoder
        while not content and not decoder.ended:
            # Its buffer is smaller than a piece, so that it is empty when one has been read.
            data = self._connected.recv(_PIECE) if self._drained else read_ahead.read1(_PIECE)
            self._drained = True
            try:
                if data:
                    content = decoder.feed(data)
                else:
                    decoder.close()
            except BadChunk as error:
                raise http.client.HTTPException(str(error)) from error
        return content


class Connection:
    """What is added to urllib3's connections: since when one has been idle, and whose it is."""

    answer: Answer
    """The one that is read, or that was read last."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._lock = threading.Lock()
        self._idle_since: float | None = None
        self._user: object = None
        self._joins = False
        self._head: bytes | None = None

    def response_class(self, *given: Any, **named: Any) -> Answer:
        """What ``http.client`` calls for each answer."""
        self.answer = Answer(*given, **named)
        return self.answer

    def request(self, *given: Any, **named: Any) -> None:
        # Without a body nothing follows the head; urllib3 has connected when this returns.
        self._joins = isinstance(named.get("body"), bytes)
        super().request(*given, **named)  # type: ignore[misc]  # of the class beside this one

    def endheaders(self, *given: Any, **named: Any) -> None:
        """As the base class; what it sends waits for the body."""
        self._head = b"" if self._joins else None
        super().endheaders(*given, **named)  # type: ignore[misc]

    def send(self, data: Any) -> None:
        head = self._head
        if head == b"":
            self._head = data
            return
        self._head = None
        if head is not None:
            if isinstance(data, bytes) and len(data) <= _JOINED:
                data = head + data
            else:
                super().send(head)  # type: ignore[misc]
        super().send(data)  # type: ignore[misc]

    @property
    def is_connected(self) -> bool:
        since = self._idle_since
        if since is not None and time.monotonic() - since > _IDLE_SECONDS:
            return False
        connected: bool = super().is_connected  # type: ignore[misc]
        return connected

    def serve(self, user: object) -> None:
        with self._lock:
            self._idle_since = None
            self._user = user

    def rest(self) -> None:
        """It goes back to its pool, and may serve others."""
        with self._lock:
            self._idle_since = time.monotonic()
            self._user = None

    def wait_for(self, user: object, seconds: float) -> bool:
        """Limit each read of ``user``; False if the connection serves it no more."""
        with self._lock:
            sock: socket.socket | None = getattr(self, "sock", None)
            if self._user is not user or sock is None:
                return False
            sock.settimeout(seconds)
            return True

    def shut_down(self, user: object) -> None:
        with self._lock:
            sock: socket.socket | None = getattr(self, "sock", None)
            if self._user is user and sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


class _Socket(socket.socket):
    """Its timeouts are the kernel's: with one of its own, Python asks before each read whether it may."""

    def __init__(self, connected: socket.socket) -> None:
        self._seconds = connected.gettimeout()
        # What the kernel has been told; at first nothing, which nothing equals.
        self._reads: float | None = math.nan
        self._writes: float | None = math.nan
        family, kind, protocol = connected.family, connected.type, connected.proto
        super().__init__(family, kind, protocol, connected.detach())
        super().settimeout(None)

    def gettimeout(self) -> float | None:
        return self._seconds

    def settimeout(self, value: float | None) -> None:
        self._seconds = value

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._reads != self._seconds:
            self._limit_reads()
        try:
            return _recv(self, size, flags)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def recv_into(self, *given: Any, **named: Any) -> int:
        if self._reads != self._seconds:
            self._limit_reads()
        try:
            return super().recv_into(*given, **named)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def sendall(self, *given: Any, **named: Any) -> None:
        if self._writes != self._seconds:
            self._writes = self._limit(socket.SO_SNDTIMEO)
        try:
            super().sendall(*given, **named)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def _limit_reads(self) -> None:
        self._reads = self._limit(socket.SO_RCVTIMEO)

    def _limit(self, option: int) -> float | None:
        seconds = self._seconds
        # 0 is no limit.
        micros = 0 if seconds is None else max(1, int(seconds * 1_000_000))
        self.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", *divmod(micros, 1_000_000)))
        return seconds


class _Plain(Connection, HTTPConnection):  # type: ignore[misc]  # a class is called as a method is
    def _new_conn(self) -> socket.socket:
        return _Socket(super()._new_conn())


class _Secure(Connection, HTTPSConnection):  # type: ignore[misc]
    pass


class _Idle(queue.LifoQueue[Any]):
    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is not None:
            item.rest()
        super().put(item, block, timeout)


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain
    QueueCls = _Idle


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Secure
    QueueCls = _Idle


def new_pool(scheme: str, host: str, port: int | None) -> urllib3.HTTPConnectionPool:
    options: dict[str, Any] = {"maxsize": _MAX_IDLE, "socket_options": _KEEP_ALIVE}
    if scheme == "https":
        return _SecurePool(host, port, ssl_context=httpx2.create_ssl_context(), **options)
    return _PlainPool(host, port, **options)
