"""Admits a bounded number of requests: the next ones wait, all others are refused with 503.

    request ──► bytes of its body ──► slot, or a place in the queue for `WAIT_SECONDS` ──► the app
                    │ too many              │ queue full, or no slot in time
                    └──────────► 503 ◄──────┘

All counts are those of all workers together (`emulator.shared.counts`). The paths in `ALWAYS`, which
operators ask for, skip admission: the server has a few threads for them. Knows nothing of
routes or keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from emulator import json_codec, metrics
from emulator.errors import Overloaded
from emulator.settings import Settings
from emulator.shared.counts import WorkerCounts
from emulator.web.middleware.request_body import close_connection
from emulator.web.middleware.response_body import ClosingBody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})
WAIT_SECONDS = 10.0
COUNTS = ("requests", "waiting requests", "bytes of bodies")

log = structlog.get_logger()


class Admission:
    """WSGI middleware. A stream counts until it ends. Uploads are on the disk, other bodies in memory."""

    def __init__(self, app: WSGIApplication, settings: Settings, counts: WorkerCounts) -> None:
        """``counts`` has the names `COUNTS`."""
        self._app = app
        requests, waiting, bodies = COUNTS
        self._slots = counts.count(requests, settings.threads)
        self._queue = counts.count(waiting, settings.waiting_requests)
        self._bodies = counts.count(bodies, settings.bodies_bytes)
        # A longer body is refused before it is read.
        self._max_body_bytes = min(
            settings.bodies_bytes, max(settings.max_body_bytes, settings.max_file_bytes)
        )

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in ALWAYS:
            return self._app(environ, start_response)
        size = self._body_bytes(environ)
        if size and not self._bodies.add(size):
            return _refuse(environ, start_response, "body bytes", "bodies_bytes")
        if not self._acquire_slot():
            self._bodies.add(-size)
            return _refuse(environ, start_response, "requests", "threads")
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

    def _acquire_slot(self) -> bool:
        if self._slots.add(1):
            return True
        if not self._queue.add(1):
            return False
        metrics.WAITING_REQUESTS.inc()
        try:
            return self._slots.acquire(WAIT_SECONDS)
        finally:
            metrics.WAITING_REQUESTS.dec()
            self._queue.release()

    def _release(self, size: int) -> None:
        self._bodies.add(-size)
        metrics.OPEN_REQUESTS.dec()
        self._slots.release()


def _refuse(
    environ: WSGIEnvironment, start_response: StartResponse, what: str, setting: str
) -> Iterable[bytes]:
    error = Overloaded(
        f"The proxy is at its limit of concurrent {what} (setting `{setting}`).",
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
