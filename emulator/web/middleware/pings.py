"""Comments for streams that have nothing to say, all written by one thread.

A request's own thread waits for the next event, and cannot write meanwhile; this thread does, through the
``write`` of PEP 3333, and only while the other one waits. Knows nothing of what a stream says.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from emulator import client_disconnect
from emulator.client_disconnect import ClientDisconnect
from emulator.upstream.sse import PING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LONGEST_LOOK = 1.0
_LOOKS_A_PING = 4
"""A ping is late by a part of its time at most."""


class Line:
    """The way to one request's client."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._waits_since = 0.0
        self._write: Callable[[bytes], Any] | None = None
        self.seconds = _LONGEST_LOOK
        self.disconnect: ClientDisconnect | None = None

    def begun(self, write: Callable[[bytes], Any]) -> None:
        self._write = write

    def wait(self) -> None:
        """The request's thread waits from now on, and writes nothing."""
        self._waits_since = time.monotonic()

    def waited(self) -> None:
        """It may write again: when this returns nobody else does."""
        with self._lock:
            self._waits_since = 0.0

    def ping(self, now: float) -> None:
        """Write a comment where one is due. Raises OSError for a client that has gone."""
        since = self._waits_since
        if not since or now - since < self.seconds:
            return
        with self._lock:
            # A client that takes nothing is not waited for; what it has not read keeps the line alive.
            if self._waits_since != since or self._write is None or not self._takes_more():
                return
            self._write(PING)
            self._waits_since = now

    def _takes_more(self) -> bool:
        if self._descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))


class _Lines:
    """Those of all streams that are open. Safe to share between threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: set[Line] = set()
        self._pause = math.inf
        """Seconds between two looks, as the open lines want it."""
        self._running = False

    @contextmanager
    def open(self, line: Line) -> Iterator[None]:
        with self._changed:
            self._lines.add(line)
            if not self._running:
                # At the first stream: a server forks between making its app and serving.
                self._running = True
                threading.Thread(target=self._look, name="pings", daemon=True).start()
            elif _pause(line) < self._pause:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._lines.discard(line)

    def _look(self) -> None:
        while True:
            with self._changed:
                self._pause = min(map(_pause, self._lines), default=math.inf)
                self._changed.wait(self._pause if self._lines else None)
                lines = list(self._lines)
            now = time.monotonic()
            for line in lines:
                try:
                    line.ping(now)
                except OSError:
                    if line.disconnect is not None:
                        # What stops may take its time, and others wait for their comments meanwhile.
                        report = line.disconnect.report
                        threading.Thread(target=report, name="disconnect", daemon=True).start()


def _pause(line: Line) -> float:
    return min(_LONGEST_LOOK, line.seconds / _LOOKS_A_PING)


_lines = _Lines()
current: ContextVar[Line | None] = ContextVar("line", default=None)
"""The way to the client of the request that this context serves."""


class Pings:
    """WSGI middleware: lets `pinged` write to each request's client."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
        line = Line(connection.fileno() if connection is not None else -1)

        def start(*given: Any, **named: Any) -> Callable[[bytes], object]:
            write = start_response(*given, **named)
            line.begun(write)
            return write

        current.set(line)
        return self._app(environ, start)


@contextmanager
def pinged(line: Line, seconds: float) -> Iterator[Line]:
    """The client gets a comment whenever ``line`` has waited for so many seconds."""
    line.seconds = seconds
    line.disconnect = client_disconnect.current.get()
    with _lines.open(line):
        yield line
