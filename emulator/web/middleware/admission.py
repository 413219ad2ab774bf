"""The WSGI middleware: admits a bounded number of requests, and holds each until its response is closed.

    request ──► slot, or a place in the queue for `WAIT_SECONDS` ──► its address (`doors`) ──► the app
                    │ queue full, or no slot in time
                    └──► 503

Each process counts its own. The paths in `ALWAYS`, which operators ask for, skip admission: the server has a
few threads for them. Knows nothing of routes or keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from emulator.core import client_disconnect, json_codec, metrics
from emulator.core.errors import EmulatorError
from emulator.settings.settings import Settings
from emulator.web.middleware import doors
from emulator.web.middleware.disconnects import Disconnects
from emulator.web.middleware.in_flight import BodyBudget, RequestInFlight, overloaded
from emulator.web.middleware.request_body import close_connection
from emulator.web.middleware.response_body import ClosingBody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})
WAIT_SECONDS = 10.0
_BODIES_BYTES = 2 * 2**30

log = structlog.get_logger()

OnRefusal = Callable[[str, str, EmulatorError], None]
"""Called with the method and the path of a request that is refused, and the error that says why."""


class Admission:
    """A stream counts until it ends. Uploads are on the disk, other bodies in memory."""

    def __init__(
        self,
        app: WSGIApplication,
        settings: Settings,
        disconnects: Disconnects,
        on_refusal: OnRefusal = lambda *_: None,
    ) -> None:
        self._app = app
        self._slots = threading.Semaphore(settings.threads)
        self._queue = threading.Semaphore(settings.waiting_requests)
        self._bodies = BodyBudget(_BODIES_BYTES, settings.threads)
        self._disconnects = disconnects
        self._on_refusal = on_refusal

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        flight = RequestInFlight(self._bodies)
        if environ.get("PATH_INFO") not in ALWAYS:
            if not self._acquire_slot():
                return self._refuse(environ, start_response)
            flight.on_close(self._release_slot)
            metrics.OPEN_REQUESTS.inc()
        connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
        if connection is not None:
            descriptor = connection.fileno()
            self._disconnects.watch(descriptor, flight.disconnect)
            flight.on_close(partial(self._disconnects.forget, descriptor, flight.disconnect))
        doors.enter(environ)
        flight.attach(environ)
        token = client_disconnect.current.set(flight.disconnect)
        try:
            return ClosingBody(self._app(environ, start_response), flight.close)
        except BaseException:
            flight.close()
            raise
        finally:
            client_disconnect.current.reset(token)

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

    def _release_slot(self) -> None:
        metrics.OPEN_REQUESTS.dec()
        self._slots.release()

    def _refuse(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        error = overloaded("requests (setting `threads`)")
        method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        self._on_refusal(method, path, error)
        metrics.REQUESTS.labels("unknown", str(error.status)).inc()
        log.warning("refused", reason=error.message, code=error.code, path=path)
        body = json_codec.dumps(error.body())
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        # The rest of the request's body is not read, so that a slow client is not waited for.
        headers += error.headers.items()
        close_connection(start_response)
        start_response("503 SERVICE UNAVAILABLE", headers)
        return [body]
