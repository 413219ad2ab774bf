"""Notice clients that disconnect while their requests are being answered.

A stream would notice at its next write, a plain answer only at its end. Here one thread watches the
connections of all current requests with epoll and reports a disconnect immediately (`client_disconnect`).
A client that shuts down only its sending side counts as disconnected, as in nginx. Without epoll (outside
Linux) a disconnect is noticed at the next write.

A connection is watched from the start of its request until the response is closed. Its descriptor may then
be closed and reused by the next connection, while epoll still holds an event of the old one: so each event
is confirmed by poll(2) under the lock before anything is stopped.
"""

from __future__ import annotations

import select
import threading
from contextlib import suppress
from functools import partial

from emulator.core.client_disconnect import ClientDisconnect
from emulator.core.errors import Overloaded

_POLL_SECONDS = 1.0
"""How often the thread checks whether the application was closed."""


class Disconnects:
    """Watches the connections of the current requests. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, ClientDisconnect] = {}
        """By descriptor."""
        self._epoll: select.epoll | None = None
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def end_requests(self) -> None:
        """End all requests with an error that says so: the proxy stops."""
        with self._lock:
            ending, self._watched = [*self._watched.values()], {}
        for disconnect in ending:
            error = Overloaded(
                "The proxy is shutting down, and the answer took longer than drain_seconds.",
                code="shutting_down",
                headers={"retry-after": "1"},
            )
            threading.Thread(target=disconnect.report, args=(error,), daemon=True).start()

    def watch(self, descriptor: int, disconnect: ClientDisconnect) -> None:
        """Report to ``disconnect`` when the client of this connection leaves, until `forget`."""
        if descriptor < 0 or not hasattr(select, "epoll"):
            return
        with self._lock:
            if self._epoll is None:
                # Not before the first request: a server may fork between create_app and serving.
                self._epoll = select.epoll()
                poll = partial(self._poll, self._epoll)
                threading.Thread(target=poll, name="disconnects", daemon=True).start()
            self._watched[descriptor] = disconnect
            with suppress(OSError):  # the connection is broken already: the next write fails
                self._epoll.register(descriptor, select.EPOLLRDHUP)

    def forget(self, descriptor: int, disconnect: ClientDisconnect) -> None:
        """Runs while the connection is still open, so the descriptor cannot be another one's yet."""
        with self._lock:
            if self._watched.get(descriptor) is disconnect and self._epoll is not None:
                del self._watched[descriptor]
                _unregister(self._epoll, descriptor)

    def _poll(self, epoll: select.epoll) -> None:
        while not self._closed:
            for descriptor, _ in epoll.poll(_POLL_SECONDS):
                with self._lock:
                    if descriptor not in self._watched or not _is_shut(descriptor):
                        continue
                    disconnect = self._watched.pop(descriptor)
                    _unregister(epoll, descriptor)
                # Stopping may take long, and other disconnects must not wait for it.
                threading.Thread(target=disconnect.report, name="disconnect", daemon=True).start()


def _unregister(epoll: select.epoll, descriptor: int) -> None:
    with suppress(OSError):  # a closed descriptor is no longer registered
        epoll.unregister(descriptor)


def _is_shut(descriptor: int) -> bool:
    """Return True if the client has shut down its side of the connection."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))
