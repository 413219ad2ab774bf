"""Record each request for an answer as a `Trace`, and what happened to its response.

Recording begins after the checks of key and limits: clients that these refuse cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from flask import Blueprint, Flask, Response, g, request

from emulator import traces
from emulator.core import client_disconnect
from emulator.core.client_disconnect import ClientDisconnect, has_disconnected
from emulator.core.client_keys import grant_of
from emulator.core.front_paths import FRONTS
from emulator.hosted.credentials import body_without_credentials
from emulator.traces import Trace, Traces

_TEXT_TYPES = ("json", "text/")


class Recording:
    """Records the requests of ``api`` that ask for an answer; create it after what may refuse them.

    Other routes call `begin` to have their request recorded.
    """

    def __init__(self, app: Flask, api: Blueprint, requests: Traces) -> None:
        self._requests = requests

        @api.before_request
        def begin() -> None:
            if request.method == "POST" and request.path in FRONTS:
                self.begin()

        app.after_request(self._record_response)

    def begin(self) -> None:
        """Record the current request, without credentials. A body that is not text is left out."""
        body = request.get_data() if _is_text(request.content_type) else b""
        traces.current.set(
            self._requests.begin(
                g.request_id,
                request.method,
                request.path,
                str(g.client),  # a plain copy: the value itself may carry the client's key
                body_without_credentials(body),
                request.url_rule.rule if request.url_rule else "",
                grant_of(g.client).name,
            )
        )

    def _record_response(self, response: Response) -> Response:
        trace = traces.current.get()
        if trace is None:
            return response
        trace.status = response.status_code
        trace.records_wire = trace.records_wire and _is_text(response.content_type)
        disconnect = client_disconnect.current.get()
        if response.is_sequence:
            trace.record_response(response.get_data())
            trace.is_complete = not trace.background and not has_disconnected()
        else:
            body = cast("Iterable[bytes]", response.response)  # no stream here is of str
            response.response = _recorded(body, trace, disconnect)
            if hasattr(body, "close"):
                response.call_on_close(body.close)

        @response.call_on_close
        def finish() -> None:
            if not trace.background:
                disconnected = disconnect is not None and disconnect.happened
                self._requests.finish(trace, disconnected=disconnected)

        return response


def _recorded(
    body: Iterable[bytes], trace: Trace, disconnect: ClientDisconnect | None
) -> Iterator[bytes]:
    """Add each chunk to the trace before it is sent."""
    for data in body:
        trace.record_response(data)
        yield data
    trace.is_complete = disconnect is None or not disconnect.happened


def _is_text(content_type: str | None) -> bool:
    """Return True for JSON and text. A body without a type counts as JSON, as it does in the routes."""
    return not content_type or any(kind in content_type for kind in _TEXT_TYPES)
