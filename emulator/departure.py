"""Whether the client of the request that is served is still there; what runs for it alone stops when not.

`web` says when a client has left; whatever waits, computes or holds something for a request registers how it
is stopped:

    with departure.stopping(session.kill):
        session.start(source)

Knows nothing of sockets, streams or sandboxes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar


class Departure:
    """Of one request's client, which may leave once. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stops: dict[object, Callable[[], None]] = {}
        self.left = False

    def leave(self) -> None:
        """The client has gone: stop what runs for it. Safe to call twice."""
        with self._lock:
            self.left = True
            # Under the lock: whatever has ended by itself, and may serve others, is not stopped any more.
            while self._stops:
                _, stop = self._stops.popitem()
                stop()

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call ``stop`` if the client leaves, or has left, before the block ends; never after that.

        It is called in another thread, and once.
        """
        key = object()
        with self._lock:
            self._stops[key] = stop
            if self.left:
                self.leave()
        try:
            yield
        finally:
            with self._lock:
                self._stops.pop(key, None)


current: ContextVar[Departure | None] = ContextVar("departure", default=None)
"""That of the request which this context serves; None where it serves none, or one for later."""


def stopping(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """`Departure.stopping`, for whichever client this is called."""
    departure = current.get()
    return nullcontext() if departure is None else departure.stopping(stop)
