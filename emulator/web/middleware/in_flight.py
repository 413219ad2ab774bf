"""A request in flight: what the server holds for it from its head to the end of its response.

    admitted ──► checked ──► its body read and parsed ──► answered ──► closed

`admission` makes one for each request, `inner_post` for a request within another one, and `checks` fills it
in. What the request holds is given back in one place, `RequestInFlight.close`: its slot, the memory of its
body, its client's place, its trace.

Law: `close` runs once, whatever happened to the request, and after the response's own body was closed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from flask import Request

from emulator.core import json_codec
from emulator.core.cached_property import cached_property
from emulator.core.client_disconnect import ClientDisconnect
from emulator.core.errors import EmulatorError, Overloaded, RateLimited
from emulator.core.events import new_id
from emulator.core.protocol import read_object
from emulator.web.middleware.doors import MODEL

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

log = structlog.get_logger()

_PIECE_BYTES = 64 * 1024
_ROOM_SECONDS = 0.1
"""A body that has arrived is read in less, so that a client's burst passes."""
_KEY = "emulator.in_flight"
"""In a WSGI environment. No header of a client can set it."""


class BodyBudget:
    """What the bodies of all requests may take: memory in bytes, and threads that wait for them.

    Safe to share between threads.
    """

    def __init__(self, size: int, threads: int) -> None:
        """Half a body holds one of the ``threads`` until its deadline: bodies of one client have a quarter of
        them, and those of all clients three quarters."""
        self._lock = threading.Lock()
        self._free_bytes = size
        self._most_of_client = max(1, threads // 4)
        self._most = max(1, threads * 3 // 4)
        self._receiving: Counter[str] = Counter()
        self._received = threading.Condition()

    def take(self, size: int) -> None:
        """Raises `Overloaded` if less is left."""
        with self._lock:
            if size <= self._free_bytes:
                self._free_bytes -= size
                return
        raise overloaded("body bytes")

    def give(self, size: int) -> None:
        with self._lock:
            self._free_bytes += size

    @contextmanager
    def receiving(self, client: str) -> Iterator[None]:
        """The block receives a body of ``client``. Raises `RateLimited`, `Overloaded`."""
        with self._received:
            has_room = partial(self._has_room, client)
            if not self._received.wait_for(has_room, _ROOM_SECONDS):
                if self._receiving[client] < self._most_of_client:
                    raise overloaded("bodies that arrive (setting `threads`)")
                raise RateLimited(
                    f"This client is sending {self._most_of_client} bodies at the same time, its limit.",
                    code="too_many_open_requests",
                    headers={"retry-after": "1"},
                )
            self._receiving[client] += 1
        try:
            yield
        finally:
            with self._received:
                self._receiving[client] -= 1
                if not self._receiving[client]:
                    del self._receiving[client]
                self._received.notify()

    def _has_room(self, client: str) -> bool:
        own = self._receiving[client]
        return own < self._most_of_client and (not own or self._receiving.total() < self._most)


def overloaded(what: str) -> Overloaded:
    """The error of a request that is beyond a limit of the process."""
    return Overloaded(
        f"The proxy is at its limit of concurrent {what}.",
        code="overloaded",
        headers={"retry-after": "1"},
    )


class RequestInFlight:
    def __init__(
        self,
        bodies: BodyBudget,
        disconnect: ClientDisconnect | None = None,
        client: str | None = None,
    ) -> None:
        """``client`` is known if another request, whose key was checked, makes this one."""
        self.id = new_id("req_")
        self.began = time.perf_counter()
        self.bodies = bodies
        self.disconnect = disconnect or ClientDisconnect()
        self._client = client
        self.request: Request
        """Set by the checks."""
        self.headers: dict[str, str] = {}
        """For the response."""
        self.error: EmulatorError | None = None
        """What the response reports."""
        self._body_bytes = 0
        self._place: Callable[[], object] | None = None
        self._releases: list[Callable[[], object]] = []

    @property
    def client(self) -> str:
        """The client, once its key was checked: a `KeyedClient`, or "" without keys."""
        assert self._client is not None
        return self._client

    @client.setter
    def client(self, client: str) -> None:
        self._client = client

    @property
    def is_recognized(self) -> bool:
        """Whether the client's key was checked."""
        return self._client is not None

    @cached_property
    def body(self) -> bytes:
        """The whole body, which counts until `release_body`. Raises `Overloaded`, `RateLimited`.

        A model in the path replaces the one in a JSON body.
        """
        request, pieces = self.request, list[bytes]()
        try:
            with self.receiving():
                while piece := request.stream.read(_PIECE_BYTES):
                    self.bodies.take(len(piece))
                    self._body_bytes += len(piece)
                    pieces.append(piece)
        except BaseException:
            self.release_body()  # now: a server may wait for the rest of a body that was refused
            raise
        data = b"".join(pieces)
        if data and request.is_json and (model := request.environ.get(MODEL)):
            return json_codec.dumps({**read_object(data), "model": model})
        return data

    def receiving(self) -> AbstractContextManager[None]:
        """The block receives the body. Raises `RateLimited` if the client sends too many at the same time."""
        return self.bodies.receiving(self._client or self.request.remote_addr or "")

    def release_body(self) -> None:
        """The body was parsed: its bytes are no longer held."""
        self.bodies.give(self._body_bytes)
        self._body_bytes = 0

    def hold_place(self, release: Callable[[], object]) -> None:
        """Hold the client's place for an answer until this request ends, or what takes the place over."""
        self._place = release

    def hand_over_place(self) -> Callable[[], object]:
        """Return what releases the client's place: an answer in the background holds it from now on."""
        place, self._place = self._place, None
        return place or (lambda: None)

    def on_close(self, release: Callable[[], object]) -> None:
        """Call ``release`` at the end of the request. The last one that was added runs first."""
        self._releases.append(release)

    def close(self) -> None:
        """Give back everything that is held."""
        self.release_body()
        releases, self._releases = [self.hand_over_place(), *self._releases], []
        while releases:
            try:
                releases.pop()()
            except Exception:  # the others are given back anyway
                log.exception("a request did not end well")
        self.error = None  # its traceback holds the request

    def attach(self, environ: WSGIEnvironment) -> None:
        """Until its end: its `request` holds the environment, and what is in a cycle is freed late."""
        environ[_KEY] = self
        self.on_close(partial(environ.pop, _KEY, None))


def attached(environ: dict[str, Any]) -> RequestInFlight:
    """The request in flight of a WSGI environment that a middleware has admitted."""
    found: RequestInFlight = environ[_KEY]
    return found


current: ContextVar[RequestInFlight] = ContextVar("in_flight")
"""The current request, from its checks to the end of its route."""
