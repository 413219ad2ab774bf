"""Record each request for an answer as a `Trace`, and what happened to its response.

Recording begins after the checks of key and limits. Of a request that these refuse only the error is
recorded, at most one a second for each kind of error: clients that are refused cannot fill the memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import cast

import structlog
from flask import Response

from emulator import traces
from emulator.core.client_disconnect import ClientDisconnect
from emulator.core.client_keys import grant_of
from emulator.core.errors import EmulatorError
from emulator.core.events import new_id
from emulator.database.counters import counted_alone
from emulator.hosted.credentials import body_without_credentials
from emulator.traces import Trace, Traces
from emulator.web.middleware.in_flight import RequestInFlight

_TEXT_TYPES = ("json", "text/")
_REFUSAL_SECONDS = 1.0

log = structlog.get_logger()


class Recording:
    """Safe to share between threads."""

    def __init__(self, requests: Traces, *, logs_bodies: bool = False) -> None:
        self._requests = requests
        self._logs_bodies = logs_bodies
        self._refused: dict[str, float] = {}
        """The code of an error -> when one was recorded last."""

    def begin(self, flight: RequestInFlight) -> None:
        """Record a request, without credentials. A body that is not text is left out."""
        request = flight.request
        body = flight.body if _is_text(request.content_type) else b""
        body = body_without_credentials(body)
        if self._logs_bodies:
            log.info("request body", body=body.decode(errors="replace"))
        trace = self._requests.begin(
            flight.id,
            request.method,
            request.path,
            str(flight.client),  # a plain copy: the value itself may carry the client's key
            body,
            request.url_rule.rule if request.url_rule else "",
            grant_of(flight.client).name,
        )
        traces.current.set(trace)
        if counted_alone.get():
            counted_alone.set(False)
            words = "Its limits were counted by this process alone: the database was unavailable."
            trace.add_note("limit-open", words)

    def record_response(self, flight: RequestInFlight, trace: Trace, response: Response) -> None:
        """Record the response, and finish the trace at its end."""
        disconnect = flight.disconnect
        trace.status = response.status_code
        trace.records_wire = trace.records_wire and _is_text(response.content_type)

        def finish() -> None:
            if not trace.background:
                self._requests.finish(trace, disconnected=disconnect.happened)

        flight.on_close(finish)
        if response.is_sequence:
            trace.record_response(response.get_data())
            trace.is_complete = not (trace.background or disconnect.happened)
        else:
            body = cast("Iterable[bytes]", response.response)  # no stream here is of str
            response.response = _recorded(body, trace, disconnect)
            if (close := getattr(body, "close", None)) is not None:
                flight.on_close(close)

    def record_refusal(
        self, method: str, path: str, error: EmulatorError, key: str = "", client: str = ""
    ) -> None:
        """Record that a request for an answer was refused before its route; ``key`` is its id."""
        code, now = error.code or error.type, time.monotonic()
        if now - self._refused.get(code, -_REFUSAL_SECONDS) < _REFUSAL_SECONDS:
            return
        self._refused[code] = now
        name = grant_of(client).name
        key = key or new_id("req_")
        trace = Trace(key, method, path, str(client), b"", time.time(), path, name)
        trace.status = error.status
        trace.set_error(error.message, code)
        self._requests.refuse(trace)


def _recorded(body: Iterable[bytes], trace: Trace, disconnect: ClientDisconnect) -> Iterator[bytes]:
    """Add each chunk to the trace before it is sent."""
    for data in body:
        trace.record_response(data)
        yield data
    trace.is_complete = not disconnect.happened


def _is_text(content_type: str | None) -> bool:
    """Return True for JSON and text. A body without a type counts as JSON, as it does in the routes."""
    return not content_type or any(kind in content_type for kind in _TEXT_TYPES)
