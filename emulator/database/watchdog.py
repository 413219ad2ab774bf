"""Shuts the socket of a connection whose server does not answer at all. Knows nothing of statements.

A server that is stopped, or whose disk has stalled, applies none of its own timeouts, and its machine still
acknowledges packets. The thread that waits for it then finds the connection closed.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

_LOOK_SECONDS = 0.5


class _Connection(Protocol):
    def fileno(self) -> int: ...


class Watchdog:
    """Safe to share between threads, not to inherit in a fork."""

    def __init__(self, seconds: float) -> None:
        """``seconds``: the longest that a block may take."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._deadlines: dict[_Connection, float] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self, connection: _Connection, seconds: float = math.inf) -> Iterator[None]:
        """Shut the socket of ``connection`` if the block takes too long, or longer than ``seconds``."""
        with self._lock:
            self._deadlines[connection] = time.monotonic() + min(seconds, self._seconds)
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[connection]

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            now = time.monotonic()
            # Locked, since a connection that leaves the block may close its descriptor.
            with self._lock:
                for connection, deadline in self._deadlines.items():
                    if deadline < now:
                        _shut(connection)


def _shut(connection: _Connection) -> None:
    # psycopg's error if it is closed, OSError if it is shut.
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)
