"""Only so many requests at once: the next ones wait for a while, those behind them are told to come again.

What operators ask (`ALWAYS`) is answered even then: the server has a few threads more than `Admission`
lets in. Knows nothing of what is asked, nor of keys.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from emulator import json_codec, metrics
from emulator.errors import Overloaded
from emulator.settings import Settings
from emulator.shared.counts import Counts, Room, SharedRoom, Tally
from emulator.web.middleware.closing import Closing

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})
WAIT_SECONDS = 10.0
COUNTED = ("requests", "waiting requests", "bytes of bodies")
"""What several workers count together."""

log = structlog.get_logger()


class Admission:
    """WSGI middleware: ``threads`` requests at once, streams until they end; some wait for their turn.

    What all of them have for bodies is bounded too: uploads lie on the disk, other bodies in memory. With
    ``counts`` the limits are those of all workers together.
    """

    def __init__(
        self, app: WSGIApplication, settings: Settings, counts: Counts | None = None
    ) -> None:
        self._app = app
        self._room: Room = threading.Semaphore(settings.threads)
        self._queue: Room = threading.Semaphore(settings.waiting_requests)
        self._shared_bytes: Tally | None = None
        if counts is not None:
            requests, waiting, bodies = COUNTED
            self._room = SharedRoom(counts.tally(requests, settings.threads))
            self._queue = SharedRoom(counts.tally(waiting, settings.waiting_requests))
            self._shared_bytes = counts.tally(bodies, settings.bodies_bytes)
        self._lock = threading.Lock()
        self._bytes_left = settings.bodies_bytes
        # Longer ones are refused before they are read.
        self._longest = min(
            settings.bodies_bytes, max(settings.max_body_bytes, settings.max_file_bytes)
        )

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in ALWAYS:
            return self._app(environ, start_response)
        size = self._size(environ)
        if not self._take(size):
            return _refuse(environ, start_response, "bytes of bodies", "bodies_bytes")
        if not self._enter():
            self._take(-size)
            return _refuse(environ, start_response, "requests", "threads")
        metrics.OPEN_REQUESTS.inc()
        leave = partial(self._leave, size)
        try:
            return Closing(self._app(environ, start_response), leave)
        except BaseException:
            leave()
            raise

    def _size(self, environ: WSGIEnvironment) -> int:
        """The bytes of a request's body; what does not say how long it is may be as long as any."""
        told = environ.get("CONTENT_LENGTH") or "0"
        if "HTTP_TRANSFER_ENCODING" in environ or not told.isdecimal():
            return self._longest
        return min(int(told[:20]), self._longest)

    def _take(self, size: int) -> bool:
        """Take ``size`` bytes of what bodies have together, or give them back; False if they are too many."""
        if self._shared_bytes is not None:
            return size == 0 or self._shared_bytes.take(size)
        with self._lock:
            if size > self._bytes_left:
                return False
            self._bytes_left -= size
            return True

    def _enter(self) -> bool:
        if self._room.acquire(blocking=False):
            return True
        if not self._queue.acquire(blocking=False):
            return False
        metrics.WAITING_REQUESTS.inc()
        try:
            return self._room.acquire(timeout=WAIT_SECONDS)
        finally:
            metrics.WAITING_REQUESTS.dec()
            self._queue.release()

    def _leave(self, size: int) -> None:
        self._take(-size)
        metrics.OPEN_REQUESTS.dec()
        self._room.release()


def _refuse(
    environ: WSGIEnvironment, start_response: StartResponse, what: str, setting: str
) -> Iterable[bytes]:
    error = Overloaded(
        f"The proxy serves as many {what} at once as it may (setting {setting}).",
        code="overloaded",
        headers={"retry-after": "1"},
    )
    body = json_codec.dumps(error.body())
    metrics.REQUESTS.labels("unknown", str(error.status)).inc()
    log.warning("refused", reason=error.message, path=environ.get("PATH_INFO"))
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    # What is left of the request's body is not read: a slow client is not waited for.
    headers += [*error.headers.items(), ("connection", "close")]
    start_response("503 SERVICE UNAVAILABLE", headers)
    return [body]
