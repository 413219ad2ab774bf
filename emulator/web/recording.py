"""Give each request for an answer its trace, and tell it how the response left.

Requests are recorded once they are admitted: whoever has no key, or has asked too often, fills no memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Flask, Response, g, request

from emulator import departure, traces
from emulator.client_keys import grant_of
from emulator.traces import Trace, Traces

_ANSWERS = frozenset({"/chat/completions", "/responses", "/messages"})


def record_requests(app: Flask, api: Blueprint, kept: Traces) -> None:
    """Record the requests of ``api`` that want an answer; to be added behind what refuses them."""

    @api.before_request
    def begin() -> None:
        if request.method != "POST" or request.path.removeprefix("/v1") not in _ANSWERS:
            return
        client = str(g.client)  # a copy: the name may carry the key
        trace = kept.begin(g.request_id, request.method, request.path, client, request.get_data())
        if trace is not None:
            trace.route = request.url_rule.rule if request.url_rule else ""
            trace.client_name = grant_of(g.client).name
        traces.current.set(trace)

    @app.after_request
    def end(response: Response) -> Response:
        trace = traces.current.get()
        if trace is None:
            return response
        trace.status = response.status_code
        if response.is_sequence:
            trace.answered(response.get_data())
        else:
            response.response = _Recorded(response.iter_encoded(), response.response, trace)
        client = departure.current.get()

        @response.call_on_close
        def finish() -> None:
            kept.finish(trace, left=client is not None and client.left)

        return response


class _Recorded:
    """A response's body, each part of which is told to the trace as it leaves."""

    def __init__(self, body: Iterator[bytes], source: object, trace: Trace) -> None:
        self._body = body
        self._source = source
        self._trace = trace

    def __iter__(self) -> Iterator[bytes]:
        for data in self._body:
            self._trace.answered(data)
            yield data

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            close()
