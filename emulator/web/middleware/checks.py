"""What every request passes in Flask: one function before its route, and one after it.

    before    an id for the log; no loop, no foreign page; for the API: the client, its requests per minute,
              and, if it asks for an answer, the client's place and a trace
    after     the trace and the log line, and the headers of the response

Law: a request that is refused here costs no more than its head: its body is not read, and of it nothing but
the error is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from flask import Response, request

from emulator import traces
from emulator.core.client_keys import KeyedClient
from emulator.core.front_paths import FRONTS
from emulator.settings.settings import Settings
from emulator.web.middleware import request_log
from emulator.web.middleware.authorization import presented_key
from emulator.web.middleware.browser_guard import allow_origins, guard
from emulator.web.middleware.in_flight import RequestInFlight, attached, current
from emulator.web.middleware.limits import Limits
from emulator.web.middleware.loop_guard import loop_guard
from emulator.web.middleware.recording import Recording

API = "v1"
"""The name of the blueprint whose clients need a key."""


class Checks:
    """`before` and `after` are Flask's hooks; a route that makes an answer calls `begin_answer`."""

    def __init__(
        self,
        settings: Settings,
        recognize: Callable[[str], KeyedClient],
        limits: Limits,
        recording: Recording,
    ) -> None:
        """``recognize`` returns the client that has a key, or raises `Unauthorized`."""
        self._check_loop = loop_guard(settings)
        self._check_page = guard(settings)
        self._allow_origins = allow_origins(settings)
        self._recognize = recognize
        self._limits = limits
        self._recording = recording

    def before(self) -> None:
        """Raises `EmulatorError` if the request is refused."""
        this = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 (Flask documents it)
        flight = attached(this.environ)
        flight.request = this
        current.set(flight)
        traces.current.set(None)  # the thread may have served another request before
        # So that every line logged for the request has its id.
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=flight.id)
        self._check_loop(this.headers)
        self._check_page(this)
        if this.blueprint == API and this.method != "OPTIONS":  # a preflight carries no key
            if not flight.is_recognized:
                flight.client = self._recognize(presented_key(this.headers))
            asks = this.method == "POST" and this.path in FRONTS
            if asks:  # first: a refusal does not count against the requests per minute
                self._take_place(flight)
            self.count_request(flight.client)
            if asks:
                self._recording.begin(flight)

    def count_request(self, client: str) -> None:
        """Count the current request as one of ``client``. Raises `RateLimited`."""
        flight = current.get()
        address = flight.request.remote_addr or ""
        flight.headers |= self._limits.count_request(client, address)

    def begin_answer(self) -> None:
        """Count an answer that the current request makes, until its end, and record it.

        Raises `RateLimited`.
        """
        flight = current.get()
        self._take_place(flight)
        self._recording.begin(flight)

    def _take_place(self, flight: RequestInFlight) -> None:
        """Raises `RateLimited`."""
        address = flight.request.remote_addr or ""
        flight.hold_place(self._limits.open_answer(flight.client, address))

    def after(self, response: Response) -> Response:
        """Complete a response of the route, or of an error."""
        flight = current.get()
        headers = response.headers
        headers.update(flight.headers)
        trace, error, this = traces.current.get(), flight.error, flight.request
        if trace is not None:
            self._recording.record_response(flight, trace, response)
        elif error is not None and this.method == "POST" and this.path in FRONTS:
            client = flight.client if flight.is_recognized else ""
            self._recording.record_refusal(this.method, this.path, error, flight.id, client)
        request_log.begin_response(flight, response, is_recorded=trace is not None)
        self._allow_origins(this, response)
        return response
