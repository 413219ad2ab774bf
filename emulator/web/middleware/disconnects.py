"""See clients leave: the connections of the requests being served are watched for their other end's close.

A stream notices a vanished client at its next write, and whatever answers in one piece only at its end; here
all of them are seen at once, and `emulator.departure` stops what runs for them. A client that shuts down
only its sending side is taken to have left, as nginx has it. Linux only (epoll); elsewhere clients are missed
at the next write. Knows nothing of what is asked.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from emulator import departure
from emulator.departure import Departure
from emulator.web.middleware.closing import Closing

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LOOK_SECONDS = 1.0
"""Between two looks at whether to end."""


class Departures:
    """WSGI middleware."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._watched: dict[int, Departure] = {}
        self._epoll: select.epoll | None = None
        self._closed = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        client = Departure()
        connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
        descriptor = connection.fileno() if connection is not None else -1
        self._watch(descriptor, client)
        token = departure.current.set(client)
        try:
            body = self._app(environ, start_response)
        except BaseException:
            self._forget(descriptor, client)
            raise
        finally:
            departure.current.reset(token)
        return Closing(body, partial(self._forget, descriptor, client))

    def close(self) -> None:
        self._closed = True

    def _watch(self, descriptor: int, client: Departure) -> None:
        if descriptor < 0 or not hasattr(select, "epoll"):
            return
        with self._lock:
            if self._epoll is None:
                # In the first request: a server forks between making its app and serving.
                self._epoll = select.epoll()
                watch = partial(self._look, self._epoll)
                threading.Thread(target=watch, name="departures", daemon=True).start()
            self._watched[descriptor] = client
            with suppress(OSError):  # the connection has broken meanwhile: its next write tells
                self._epoll.register(descriptor, select.EPOLLRDHUP)

    def _forget(self, descriptor: int, client: Departure) -> None:
        """While its connection is still open: its number may be another's after that."""
        with self._lock:
            if self._watched.get(descriptor) is client and self._epoll is not None:
                del self._watched[descriptor]
                _unregister(self._epoll, descriptor)

    def _look(self, epoll: select.epoll) -> None:
        while not self._closed:
            for descriptor, _ in epoll.poll(_LOOK_SECONDS):
                with self._lock:
                    # Since it was told, the descriptor may have become another connection's.
                    if descriptor not in self._watched or not _is_shut(descriptor):
                        continue
                    client = self._watched.pop(descriptor)
                    _unregister(epoll, descriptor)
                # What stops may take its time, and others leave meanwhile.
                threading.Thread(target=client.leave, name="departure", daemon=True).start()


def _unregister(epoll: select.epoll, descriptor: int) -> None:
    # One that was closed is no longer registered.
    with suppress(OSError):
        epoll.unregister(descriptor)


def _is_shut(descriptor: int) -> bool:
    """Whether the other side of a connection has shut it down."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))
