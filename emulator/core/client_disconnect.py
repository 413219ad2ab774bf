"""Stop the work for a request when its client disconnects.

`web` reports the disconnect. Code that waits, computes or holds something for one request registers how to
stop it:

    with stop_on_disconnect(session.kill):
        session.start(source)

A `ClientDisconnect` has two states, *connected* and *happened*, and changes once. A stop function runs at
most once, in another thread, and never after its block has ended, because the session or connection that it
would stop may then serve another request. Knows nothing of sockets, streams or sandboxes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from emulator.core.errors import EmulatorError

_CHECK_SECONDS = 0.25


class ClientDisconnect:
    """The possible disconnect of one request's client. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stops: dict[object, Callable[[], None]] = {}
        self.happened = False
        self.error: EmulatorError | None = None
        """What the client, which is still there, is sent instead of its answer; None if it disconnected."""

    def report(self, error: EmulatorError | None = None) -> None:
        """Record the disconnect and stop all registered work. Safe to call twice.

        With ``error`` the proxy ends the request, not the client.
        """
        # The lock is held while work is stopped, so that no block can end in the meantime.
        with self._lock:
            if not self.happened:
                self.error = error
            self.happened = True
            while self._stops:
                _, stop = self._stops.popitem()
                stop()

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call ``stop`` if the client disconnects before the block ends, or has disconnected already."""
        key = object()
        with self._lock:
            self._stops[key] = stop
            if self.happened:
                self.report()
        try:
            yield
        finally:
            with self._lock:
                self._stops.pop(key, None)


current: ContextVar[ClientDisconnect | None] = ContextVar("client_disconnect", default=None)
"""The disconnect of the current request's client; None outside of a request."""


def stop_on_disconnect(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """`ClientDisconnect.stopping` for the client of the current request, if there is one."""
    disconnect = current.get()
    return nullcontext() if disconnect is None else disconnect.stopping(stop)


def has_disconnected() -> bool:
    """Return True if the client of the current request has disconnected."""
    disconnect = current.get()
    return disconnect is not None and disconnect.happened


def is_ending() -> bool:
    """Return True if the proxy itself ends the current request."""
    disconnect = current.get()
    return disconnect is not None and disconnect.error is not None


class _Lock(Protocol):
    def acquire(self, *, timeout: float) -> bool: ...


def acquire_for_client(lock: _Lock, seconds: float) -> bool:
    """Acquire ``lock``. Returns False after ``seconds``, or soon after the client has disconnected."""
    until = time.monotonic() + seconds
    while not has_disconnected():
        remaining = max(0.0, until - time.monotonic())
        if lock.acquire(timeout=min(remaining, _CHECK_SECONDS)):
            return True
        if not remaining:
            break
    return False
