"""Write pings to streams that are silent, from one thread for all streams.

The thread of a request waits for the next event and cannot write meanwhile. So the ping thread writes,
through the ``write`` function of PEP 3333, but only while the request's thread waits:

    writing   the request's thread may write      ── wait ──►  waiting
    waiting   the ping thread may write           ── resume ──►  writing

`resume` returns only when the ping thread is not writing, so the two never write at the same time. Knows
nothing of what a stream contains, nor of what a ping is: each API has its own.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emulator.core.client_disconnect import ClientDisconnect

_MAX_PAUSE_SECONDS = 1.0
_CHECKS_PER_PING = 4
"""A ping is late by at most this part of its interval."""


class PingedStream:
    """A stream whose client gets a ping after each ``seconds`` of silence; ``make_ping`` makes its bytes."""

    def __init__(
        self, seconds: float, disconnect: ClientDisconnect, make_ping: Callable[[], bytes]
    ) -> None:
        self.seconds = seconds
        self._make_ping = make_ping
        self._disconnect = disconnect
        self._lock = threading.Lock()
        self._waiting_since = 0.0
        self._write: Callable[[bytes], Any] | None = None
        self._descriptor = -1

    def connect(self, write: Callable[[bytes], Any], descriptor: int) -> None:
        """The response has begun: ``write`` writes to the client, ``descriptor`` is its connection or -1."""
        self._write, self._descriptor = write, descriptor

    def wait(self) -> None:
        """The request's thread writes nothing from now on."""
        self._waiting_since = time.monotonic()

    def resume(self) -> None:
        """The request's thread may write again when this returns."""
        with self._lock:
            self._waiting_since = 0.0

    def ping(self, now: float) -> None:
        """Write a ping if one is due."""
        since = self._waiting_since
        if not since or now - since < self.seconds:
            return
        with self._lock:
            # A client that does not read must not block this thread; its unread data keeps the stream alive.
            if self._waiting_since != since or self._write is None or not self._accepts_data():
                return
            self._waiting_since = now
            try:
                self._write(self._make_ping())
            except OSError:
                # Stopping may take long, and other streams must not wait for it.
                report = self._disconnect.report
                threading.Thread(target=report, name="disconnect", daemon=True).start()

    def _accepts_data(self) -> bool:
        if self._descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))


class _PingThread:
    """Pings all open streams. Safe to share between threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._streams: set[PingedStream] = set()
        self._pause = math.inf
        """Seconds between two checks, as the open streams need it."""
        self._running = False

    @contextmanager
    def pinging(self, stream: PingedStream) -> Iterator[None]:
        """Ping ``stream`` until the block ends."""
        with self._changed:
            self._streams.add(stream)
            if not self._running:
                # Not before the first stream: a server may fork between create_app and serving.
                self._running = True
                threading.Thread(target=self._run, name="pings", daemon=True).start()
            elif _pause(stream) < self._pause:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._streams.discard(stream)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._pause = min(map(_pause, self._streams), default=math.inf)
                self._changed.wait(self._pause if self._streams else None)
                streams = list(self._streams)
            now = time.monotonic()
            for stream in streams:
                stream.ping(now)


def _pause(stream: PingedStream) -> float:
    return min(_MAX_PAUSE_SECONDS, stream.seconds / _CHECKS_PER_PING)


pinging = _PingThread().pinging
