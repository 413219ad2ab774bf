"""gunicorn's gthread worker, made patient: a connection gets a thread only for a request whose head is
whole.

A thread that reads a head waits for its client, and slow clients would hold them all (Slowloris). So the
worker's own loop collects heads, without waiting, and cuts off those that take too long; when there are too
many connections, the oldest unfinished ones give way. A body is read by the request's thread (`bodies`).
Knows nothing of the app.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from emulator.web.server.balance import Balance
from emulator.web.server.bodies import BodySocket
from emulator.web.server.client_socket import ClientSocket
from emulator.web.server.threads import Threads

HEAD_BYTES = 64 * 1024
_SPARE = 16
"""Connections that are always left for those who come next."""
_DRAIN_SECONDS = 0.2
_LINGER_SECONDS = 2.0
_PIECE = 64 * 1024
_LAST_REQUEST_SECONDS = 0.3
"""How long a worker that stops waits for a next request on connections that are open."""
_TELL_SECONDS = 0.5
"""How long it waits for open requests before it says so."""
_NOTIFY_SECONDS = 1.0
"""The master looks as often whether it lives."""
_MAKE_ROOM_SECONDS = 0.005
_END = b"\r\n\r\n"
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_NO_DESCRIPTORS_SECONDS = 0.05
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _Done:
    """What the base class asks of the future that it would have."""

    def cancelled(self) -> bool:
        return False

    def result(self) -> bool:
        return True


_STAYS = _Done()


class _Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    head = b""
    """What has come of the next request's head."""
    seconds = 20.0

    def init(self) -> None:
        super().init()
        reader = self.parser.unreader
        reader.unread(self.head)
        self.head = b""
        reader.sock = BodySocket(self.sock, self.seconds)


def _is_closed(client: socket.socket) -> bool:
    """Whether it gave way to one that came in the same round, after the round's events were told."""
    return client.fileno() < 0


def worker_class(client_seconds: float) -> type[Worker]:
    """The worker whose clients have so many seconds for a head, and for a body before its rate counts."""
    return type("Worker", (Worker,), {"client_seconds": client_seconds})


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    client_seconds = 20.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.balance = Balance()
        """With that of other workers, where there are several."""
        self._notified = -math.inf
        self._rounds = 0
        """How often the loop has looked at all connections."""
        self._heads: dict[_Connection, int] = {}
        """Connections whose head is not whole, the oldest first; the round in which they were
        registered.
        """
        self._lingering: dict[_Connection, None] = {}
        """Connections that have had their last answer, until their clients close them too."""

    def get_thread_pool(self) -> Threads:
        return Threads(self.cfg.threads)

    def accept(self, listener: socket.socket) -> None:
        if self.balance.should_yield():  # all others here are served meanwhile
            self.set_accept_enabled(False)
            return
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                self._free_a_descriptor()
            elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self.nr_conns += 1
        self.balance.report(self.nr_conns)
        client = ClientSocket(client)
        connection = _Connection(self.cfg, client, address, listener.getsockname())
        connection.seconds = self.client_seconds
        self._await_head(connection)
        self._make_room()

    def set_accept_enabled(self, enabled: bool) -> None:
        """As the base class, but not while others are given way to."""
        if not (enabled and self.balance.seconds > 0):
            super().set_accept_enabled(enabled)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """As the base class, but no longer than others are given way to."""
        left = self.balance.seconds
        super().wait_for_and_dispatch_events(min(timeout, left) if left > 0 else timeout)

    def on_client_socket_readable(self, conn: _Connection, client: socket.socket) -> None:
        if _is_closed(client):
            return
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        try:
            begun = client.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            self._await_head(conn)
            return
        except OSError:
            begun = b""
        if not begun:
            self.nr_conns -= 1
            conn.close()
        elif _END in begun:  # all of the head at once, as nearly always
            conn.head, conn.data_ready = begun, True
            self.enqueue_req(conn)
        else:
            self._await_head(conn, begun)

    def enqueue_req(self, conn: _Connection) -> None:
        """As the base class, without a future that nobody waits for."""
        self.tpool.run(partial(self._answer, conn))

    def _answer(self, conn: _Connection) -> None:
        stays = False
        try:
            stays = self.handle(conn) is True
        except BaseException:
            self.log.exception("a request's thread failed")
        self.method_queue.defer(self.finish_request, conn, stays)

    def finish_request(self, conn: _Connection, stays: bool) -> None:
        """As the base class; but what has been read of a next request is a head like any other."""
        if not stays:
            self._linger(conn)
        elif begun := conn.parser.unreader.take_buffered():
            self._await_head(conn, begun)
        else:
            super().finish_request(conn, _STAYS)

    def handle_request(self, req: Any, conn: _Connection) -> Any:
        """As the base class; an answer without a body ends with its head."""
        stays = super().handle_request(req, conn)
        conn.sock.flush()
        return stays

    def init_signals(self) -> None:
        super().init_signals()
        # Ctrl-C at a terminal comes here too, but the master decides. Children would inherit SIG_IGN.
        signal.signal(signal.SIGINT, lambda *_: None)
        # Until the app is there, which it is for.
        signal.signal(signal.SIGHUP, lambda *_: None)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """As the base class; while the app still loads there is nothing to wait for."""
        if not self.booted:
            os._exit(0)
        super().handle_exit(sig, frame)

    def handle_quit(self, _sig: int, _frame: Any) -> None:
        """Leave at once: what the app started ends with this process."""
        os._exit(0)

    def notify(self) -> None:
        """As the base class, but no more often than the master looks."""
        now = time.monotonic()
        if now >= self._notified + _NOTIFY_SECONDS:
            self._notified = now
            super().notify()
        self.balance.report(self.nr_conns)

    def murder_pending(self) -> None:
        super().murder_pending()
        self._rounds += 1
        self._make_room()
        now = time.monotonic()
        for connection in [one for one in self._heads if one.timeout < now]:
            self._drop(connection, _TOO_SLOW if connection.head else b"")
        for connection in [one for one in self._lingering if one.timeout < now]:
            self._end(connection)

    def _keepalive_after(self, conn: _Connection, keepalive: Any) -> bool:
        """As the base class, but what nobody read of a body is hardly waited for."""
        return bool(keepalive) and conn.parser.finish_body(time.monotonic() + _DRAIN_SECONDS)

    def _cap_keepalive(self, deadline: float) -> None:
        """The worker stops: requests that have not come by now are not waited for."""
        super()._cap_keepalive(min(deadline, time.monotonic() + _LAST_REQUEST_SECONDS))
        for connection in list(self._heads):
            self._drop(connection)
        # One that is about to end anyway is not worth a word.
        telling = threading.Timer(_TELL_SECONDS, self._tell_open)
        telling.daemon = True
        telling.start()

    def _tell_open(self) -> None:
        if busy := self.nr_conns - len(self.keepalived_conns) - len(self._lingering):
            self.log.warning(
                "Ending: %s open request(s) have %s s to end; Ctrl-C again does not wait",
                busy,
                self.cfg.graceful_timeout,
            )

    def _await_head(self, connection: _Connection, begun: bytes = b"") -> None:
        connection.timeout = time.monotonic() + self.client_seconds
        self._heads[connection] = self._rounds
        self.poller.register(connection.sock, EVENT_READ, partial(self._more_of, connection))
        if begun:
            self._take(connection, begun)

    def _more_of(self, connection: _Connection, client: socket.socket) -> None:
        if _is_closed(client):
            return
        try:
            data = client.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._take(connection, data)
        else:
            self._drop(connection)

    def _take(self, connection: _Connection, data: bytes) -> None:
        seen = max(0, len(connection.head) - len(_END))
        connection.head += data
        if connection.head.find(_END, seen) >= 0:
            self._forget(connection)
            connection.data_ready = True
            self.enqueue_req(connection)
        elif len(connection.head) > HEAD_BYTES:
            self._drop(connection, _TOO_LARGE)

    def _forget(self, connection: _Connection) -> None:
        del self._heads[connection]
        self.poller.unregister(connection.sock)

    def _drop(self, connection: _Connection, last_words: bytes = b"") -> None:
        self._forget(connection)
        self.nr_conns -= 1
        if last_words:
            with suppress(OSError):
                connection.sock.send(last_words)
        connection.close()

    def _linger(self, connection: _Connection) -> None:
        """Close when the client does, lest a reset overtake the answer (RFC 9112, 9.6).

        gunicorn waits for that in its loop, where any client could hold up all others.
        """
        try:
            connection.sock.setblocking(False)
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.nr_conns -= 1
            connection.close()
            return
        connection.timeout = time.monotonic() + _LINGER_SECONDS
        self._lingering[connection] = None
        self.poller.register(connection.sock, EVENT_READ, partial(self._last_of, connection))

    def _last_of(self, connection: _Connection, client: socket.socket) -> None:
        if _is_closed(client):
            return
        with suppress(BlockingIOError, InterruptedError):
            try:
                data = client.recv(_PIECE)
            except ConnectionError:
                data = b""
            if not data:
                self._end(connection)

    def _end(self, connection: _Connection) -> None:
        del self._lingering[connection]
        self.poller.unregister(connection.sock)
        self.nr_conns -= 1
        connection.close()

    def _make_room(self) -> None:
        """Those who send nothing, and those who hold a connection for later, give way to who comes."""
        while self.nr_conns > self.worker_connections - _SPARE and self._give_way():
            time.sleep(_MAKE_ROOM_SECONDS)

    def _free_a_descriptor(self) -> None:
        """The next look at the listener finds one. Where all are in use, that look is not taken at once."""
        if not self._give_way():
            time.sleep(_NO_DESCRIPTORS_SECONDS)

    def _looked_at(self, connection: _Connection) -> bool:
        """Whether the loop has looked what it says; one that has only just come may be about to say all."""
        return self._rounds - self._heads[connection] > 1

    def _give_way(self) -> bool:
        """Close one connection on which no request is being answered; False if there is none."""
        if self._lingering:
            self._end(next(iter(self._lingering)))
        elif self._heads and self._looked_at(oldest := next(iter(self._heads))):
            self._drop(oldest)
        elif self.keepalived_conns:
            connection = self.keepalived_conns.popleft()
            self.poller.unregister(connection.sock)
            self.nr_conns -= 1
            connection.close()
        else:
            return False
        return True
