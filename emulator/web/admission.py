"""Only so many requests at once: the next ones wait for a while, those behind them are told to come again.

What operators ask (`ALWAYS`) is answered even then: the server has a few threads more than `Admission`
lets in. Knows nothing of what is asked, nor of keys.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog
from werkzeug.wsgi import ClosingIterator

from emulator import json_codec, metrics
from emulator.errors import Overloaded

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})
RESERVED_THREADS = 16
"""Of the server, for `ALWAYS` and for refusals."""
WAIT_SECONDS = 10.0

log = structlog.get_logger()


class Admission:
    """WSGI middleware: ``most`` requests at once, streams until they end; ``waiting`` wait for their turn."""

    def __init__(
        self, app: WSGIApplication, most: int, waiting: int, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._app = app
        self._room = threading.Semaphore(most)
        self._queue = threading.Semaphore(waiting)
        self._wait_seconds = wait_seconds

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in ALWAYS:
            return self._app(environ, start_response)
        if not self._enter():
            return _refuse(environ, start_response)
        metrics.OPEN_REQUESTS.inc()
        try:
            return ClosingIterator(self._app(environ, start_response), self._leave)
        except BaseException:
            self._leave()
            raise

    def _enter(self) -> bool:
        if self._room.acquire(blocking=False):
            return True
        if not self._queue.acquire(blocking=False):
            return False
        metrics.WAITING_REQUESTS.inc()
        try:
            return self._room.acquire(timeout=self._wait_seconds)
        finally:
            metrics.WAITING_REQUESTS.dec()
            self._queue.release()

    def _leave(self) -> None:
        metrics.OPEN_REQUESTS.dec()
        self._room.release()


def _refuse(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    error = Overloaded(
        "The proxy serves as many requests as it may (setting threads).",
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
