"""Admits a bounded number of requests: the next ones wait, all others are refused with 503.

    request ──► bytes of its body ──► slot, or a place in the queue for `WAIT_SECONDS` ──► the app
                    │ too many              │ queue full, or no slot in time
                    └──────────► 503 ◄──────┘

Each process counts its own. The paths in `ALWAYS`, which
operators ask for, skip admission: the server has a few threads for them. Knows nothing of
routes or keys.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from emulator.core import json_codec, metrics
from emulator.core.errors import Overloaded
from emulator.settings.settings import Settings
from emulator.web.middleware.request_body import close_connection
from emulator.web.middleware.response_body import ClosingBody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})
WAIT_SECONDS = 10.0
_BODIES_BYTES = 2 * 2**30
"""Of all request bodies in memory."""

log = structlog.get_logger()


class Admission:
    """WSGI middleware. A stream counts until it ends. Uploads are on the disk, other bodies in memory."""

    def __init__(self, app: WSGIApplication, settings: Settings) -> None:
        self._app = app
        self._slots = threading.Semaphore(settings.threads)
        self._queue = threading.Semaphore(settings.waiting_requests)
        self._lock = threading.Lock()
        self._bytes_left = _BODIES_BYTES
        # A longer body is refused before it is read.
        self._max_body_bytes = min(
            _BODIES_BYTES, max(settings.max_body_bytes, settings.max_file_bytes)
        )

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in ALWAYS:
            return self._app(environ, start_response)
        size = self._body_bytes(environ)
        if size and not self._take_bytes(size):
            return _refuse(environ, start_response, "body bytes")
        if not self._acquire_slot():
            self._give_bytes(size)
            return _refuse(environ, start_response, "requests (setting `threads`)")
        metrics.OPEN_REQUESTS.inc()
        release = partial(self._release, size)
        try:
            return ClosingBody(self._app(environ, start_response), release)
        except BaseException:
            release()
            raise

    def _body_bytes(self, environ: WSGIEnvironment) -> int:
        """The length of a request's body. A body without a declared length counts as the maximum length."""
        declared = environ.get("CONTENT_LENGTH") or "0"
        if "HTTP_TRANSFER_ENCODING" in environ or not declared.isdecimal():
            return self._max_body_bytes
        return min(int(declared[:20]), self._max_body_bytes)

    def _take_bytes(self, size: int) -> bool:
        with self._lock:
            if fits := size <= self._bytes_left:
                self._bytes_left -= size
            return fits

    def _give_bytes(self, size: int) -> None:
        with self._lock:
            self._bytes_left += size

    def _acquire_slot(self) -> bool:
        if self._slots.acquire(blocking=False):
            return True
        if not self._queue.acquire(blocking=False):
            return False
        metrics.WAITING_REQUESTS.inc()
        try:
            return self._slots.acquire(timeout=WAIT_SECONDS)
        finally:
            metrics.WAITING_REQUESTS.dec()
            self._queue.release()

    def _release(self, size: int) -> None:
        self._give_bytes(size)
        metrics.OPEN_REQUESTS.dec()
        self._slots.release()


def _refuse(environ: WSGIEnvironment, start_response: StartResponse, what: str) -> Iterable[bytes]:
    error = Overloaded(
        f"The proxy is at its limit of concurrent {what}.",
        code="overloaded",
        headers={"retry-after": "1"},
    )
    body = json_codec.dumps(error.body())
    metrics.REQUESTS.labels("unknown", str(error.status)).inc()
    log.warning("refused", reason=error.message, path=environ.get("PATH_INFO"))
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    # The rest of the request's body is not read, so that a slow client is not waited for.
    headers += error.headers.items()
    close_connection(start_response)
    start_response("503 SERVICE UNAVAILABLE", headers)
    return [body]
