"""gunicorn's gthread worker, changed so that a connection gets a thread only when its head is complete.

In the base class a thread reads the head, so slow clients would occupy all threads (Slowloris). Here the
worker's loop collects heads without blocking, and closes connections that take too long. When there are too
many connections, those without a request make room for new ones. `connections` shows the states. Knows
nothing of the application.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache, partial
from selectors import EVENT_READ
from typing import Any

import gunicorn.util
from gunicorn.workers.gthread import ThreadWorker

from emulator.web.server.connections import LINGER_SECONDS, Connection

MAX_HEAD_BYTES = 64 * 1024
_RESERVED_CONNECTIONS = 16
"""Connections that are kept free for new clients, but at most a quarter of all."""
_HEAD_SECONDS = 0.5
"""A connection without a head is closed to make room only if it is older."""
_DRAIN_SECONDS = 0.2
"""Longest wait for the part of a body that the application did not read."""
_READ_BYTES = 64 * 1024
_LAST_REQUEST_SECONDS = 0.3
"""How long a stopping worker waits for another request on connections that are kept alive."""
_REPORT_SECONDS = 0.5
"""How long a stopping worker waits for open requests before it logs their number."""
_MAKE_ROOM_SECONDS = 0.005
_HEAD_END = b"\r\n\r\n"
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_NO_DESCRIPTORS_SECONDS = 0.05
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@lru_cache(maxsize=4)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


# For the header `date`, which gunicorn writes anew for each response.
gunicorn.util.http_date = lambda timestamp=None: _date(int(timestamp or time.time()))


def _receive(client: socket.socket) -> bytes | None:
    """Return the bytes that have arrived, None if there are none, b"" if the connection is closed."""
    try:
        return client.recv(_READ_BYTES)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    client_seconds = 20.0
    """Time that a client has for a head, and for a body before its rate counts."""
    drain_seconds = 0.0
    descriptors = math.inf
    """The number of files to open for clients and for the upstreams of their requests; the master sets it."""
    end_requests: Callable[[], None]
    """Ends open requests with an error; the master sets it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._round = 0
        """Counts the rounds in which the loop has handled all events."""
        self._awaiting_head: dict[Connection, int] = {}
        """The connections without a complete head, oldest first: the round in which each was registered."""
        self._closing: dict[Connection, None] = {}
        """The connections that wait for their clients to close, oldest first."""

    # Accepting.

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                self._free_a_descriptor()
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self.nr_conns += 1
        connection = Connection(self.cfg, client, address, listener.getsockname())
        connection.body_seconds = self.client_seconds
        self._await_head(connection)
        self._make_room()

    # Awaiting a head.

    def _await_head(self, connection: Connection, data: bytes = b"") -> None:
        """``data`` is the part of the head that has been read already."""
        connection.sock.setblocking(False)
        connection.timeout = time.monotonic() + self.client_seconds
        self._awaiting_head[connection] = self._round
        self.poller.register(connection.sock, EVENT_READ, partial(self._read_head, connection))
        if data:
            self._add_to_head(connection, data)

    def _read_head(self, connection: Connection, client: socket.socket) -> None:
        if connection.is_closed:
            return
        data = _receive(client)
        if data:
            self._add_to_head(connection, data)
        elif data is not None:
            self._drop(connection)

    def _add_to_head(self, connection: Connection, data: bytes) -> None:
        searched = max(0, len(connection.head) - len(_HEAD_END))
        connection.head += data
        if connection.head.find(_HEAD_END, searched) >= 0:
            self._stop_awaiting(connection)
            self._assign_thread(connection, connection.head)
        elif len(connection.head) > MAX_HEAD_BYTES:
            self._drop(connection, _TOO_LARGE)

    def _assign_thread(self, connection: Connection, head: bytes) -> None:
        connection.head = head
        connection.data_ready = True  # the base class must not wait for data in the thread
        self.enqueue_req(connection)

    def _stop_awaiting(self, connection: Connection) -> None:
        del self._awaiting_head[connection]
        self.poller.unregister(connection.sock)

    def _drop(self, connection: Connection, response: bytes = b"") -> None:
        """Close a connection whose head is not complete, after an attempt to send ``response``."""
        self._stop_awaiting(connection)
        if response:
            with suppress(OSError):
                connection.sock.send(response)
        self._close(connection)

    # The end of a request, and the next one on its connection.

    def finish_request(self, conn: Connection, fs: Future[Any]) -> None:
        """Like the base class, but bytes of the next request are treated as the start of a head."""
        if fs.cancelled() or fs.exception() is not None or not fs.result():
            self._close_gracefully(conn)
        elif data := conn.parser.unreader.take_buffered():
            self._await_head(conn, data)
        else:
            super().finish_request(conn, fs)

    def _keepalive_after(self, conn: Connection, keepalive: Any) -> bool:
        """Like the base class, with a shorter wait for the unread part of a body."""
        return bool(keepalive) and conn.parser.finish_body(time.monotonic() + _DRAIN_SECONDS)

    def on_client_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        """A connection that was kept alive has data or was closed by its client."""
        if conn.is_closed:
            return
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        data = _receive(client)
        if data is None:
            self._await_head(conn)
        elif not data:
            self._close(conn)
        elif _HEAD_END in data:  # nearly always; spares registering it again
            self._assign_thread(conn, data)
        else:
            self._await_head(conn, data)

    # Closing.

    def _close_gracefully(self, connection: Connection) -> None:
        """Close after the client does: a reset could destroy the response on its way (RFC 9112, 9.6).

        gunicorn waits for the client in its loop, where any client could delay all others.
        """
        try:
            connection.sock.setblocking(False)
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(connection)
            return
        connection.timeout = time.monotonic() + LINGER_SECONDS
        self._closing[connection] = None
        self.poller.register(connection.sock, EVENT_READ, partial(self._read_until_eof, connection))

    def _read_until_eof(self, connection: Connection, client: socket.socket) -> None:
        if connection.is_closed:
            return
        if _receive(client) == b"":
            self._end_closing(connection)

    def _end_closing(self, connection: Connection) -> None:
        del self._closing[connection]
        self.poller.unregister(connection.sock)
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        self.nr_conns -= 1
        connection.close()

    # Deadlines and room for new connections.

    def murder_pending(self) -> None:
        """Runs at the end of each round: close connections whose deadline has passed."""
        super().murder_pending()
        self._round += 1
        self._make_room()
        now = time.monotonic()
        for connection in [one for one in self._awaiting_head if one.timeout < now]:
            self._drop(connection, _TOO_SLOW if connection.head else b"")
        for connection in [one for one in self._closing if one.timeout < now]:
            self._end_closing(connection)

    def _make_room(self) -> None:
        """Close connections without a request until there is room for new ones."""
        # The base class accepts up to this number. Each request needs a second descriptor, for its upstream.
        self.worker_connections = min(self.cfg.worker_connections, self.descriptors - self._busy)
        limit = self.worker_connections - min(_RESERVED_CONNECTIONS, self.worker_connections // 4)
        while self.nr_conns > limit and self._close_one():
            time.sleep(_MAKE_ROOM_SECONDS)

    @property
    def _busy(self) -> int:
        """The number of connections that have a request."""
        idle = len(self._awaiting_head) + len(self.keepalived_conns) + len(self._closing)
        return int(self.nr_conns) - idle

    def _free_a_descriptor(self) -> None:
        """Make the next accept possible. If every connection has a request, wait a little before it."""
        if not self._close_one():
            time.sleep(_NO_DESCRIPTORS_SECONDS)

    def _close_one(self) -> bool:
        """Close the least needed connection: a closing one, else one whose head is late, else one kept alive.

        Return False if all have a request.
        """
        if self._closing:
            self._end_closing(next(iter(self._closing)))
        elif self._awaiting_head and self._is_late(oldest := next(iter(self._awaiting_head))):
            self._drop(oldest)
        elif self.keepalived_conns:
            connection = self.keepalived_conns.popleft()
            self.poller.unregister(connection.sock)
            self._close(connection)
        else:
            return False
        return True

    def _is_late(self, connection: Connection) -> bool:
        """Return True if the head should have been read: the connection is old enough, and a whole round has
        passed in which the loop would have read an arrived head."""
        age = time.monotonic() - (connection.timeout - self.client_seconds)
        return age > _HEAD_SECONDS and self._round - self._awaiting_head[connection] > 1

    # Signals and the end.

    def init_signals(self) -> None:
        super().init_signals()
        # A terminal's Ctrl-C reaches the worker too, but the master decides. Children would inherit SIG_IGN.
        signal.signal(signal.SIGINT, lambda *_: None)
        # Replaced when the application is loaded.
        signal.signal(signal.SIGHUP, lambda *_: None)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Like the base class, but exits immediately while the application is still loading."""
        if not self.booted:
            os._exit(0)
        super().handle_exit(sig, frame)

    def handle_quit(self, _sig: int, _frame: Any) -> None:
        """Exit immediately: processes that the application started end with this one."""
        os._exit(0)

    def _cap_keepalive(self, deadline: float) -> None:
        """The worker stops: close connections without a request soon, and log what it waits for."""
        super()._cap_keepalive(min(deadline, time.monotonic() + _LAST_REQUEST_SECONDS))
        for connection in list(self._awaiting_head):
            self._drop(connection)
        # Requests that end within this time are not worth a line.
        report = threading.Timer(_REPORT_SECONDS, self._report_open_requests)
        end = threading.Timer(self.drain_seconds, self.end_requests)
        for timer in (report, end):
            timer.daemon = True
            timer.start()

    def _report_open_requests(self) -> None:
        if busy := self._busy:
            self.log.warning(
                "Stopping: %s open request(s) have %s s to finish; press Ctrl-C again to stop immediately",
                busy,
                int(self.drain_seconds),
            )
