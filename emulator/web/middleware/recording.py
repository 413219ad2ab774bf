"""Give each request for an answer its trace, and tell it how the response left.

Requests are recorded once they are admitted: whoever has no key, or has asked too often, fills no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from flask import Blueprint, Flask, Response, g, request

from emulator import departure, traces
from emulator.client_keys import grant_of
from emulator.departure import Departure
from emulator.traces import Trace, Traces

_ANSWERS = frozenset({"/chat/completions", "/responses", "/messages"})
_TEXTS = ("json", "text/")


class Recording:
    """Records the requests of ``api`` that want an answer; to be made behind what refuses them.

    What else is to be recorded says so itself, by `begin`.
    """

    def __init__(self, app: Flask, api: Blueprint, requests: Traces) -> None:
        self._requests = requests

        @api.before_request
        def begin() -> None:
            if request.method == "POST" and request.path.removeprefix("/v1") in _ANSWERS:
                self.begin()

        app.after_request(self._end)

    def begin(self) -> None:
        """Record the request that is served. Of its body only what is text."""
        traces.current.set(
            self._requests.begin(
                g.request_id,
                request.method,
                request.path,
                str(g.client),  # a copy: the name may carry the key
                request.get_data() if _is_text(request.content_type) else b"",
                request.url_rule.rule if request.url_rule else "",
                grant_of(g.client).name,
            )
        )

    def _end(self, response: Response) -> Response:
        trace = traces.current.get()
        if trace is None:
            return response
        trace.status = response.status_code
        trace.wired = trace.wired and _is_text(response.content_type)
        client = departure.current.get()
        if response.is_sequence:
            trace.answered(response.get_data())
            trace.written = not trace.background and (client is None or not client.left)
        else:
            body = cast("Iterable[bytes]", response.response)  # no stream here is of text
            response.response = _Recorded(body, trace, client)

        @response.call_on_close
        def finish() -> None:
            if not trace.background:
                self._requests.finish(trace, left=client is not None and client.left)

        return response


class _Recorded:
    """A response's body, each part of which is told to the trace as it leaves."""

    def __init__(self, body: Iterable[bytes], trace: Trace, client: Departure | None) -> None:
        self._body = body
        self._trace = trace
        self._client = client

    def __iter__(self) -> Iterator[bytes]:
        answered = self._trace.answered
        for data in self._body:
            answered(data)
            yield data
        self._trace.written = self._client is None or not self._client.left

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()


def _is_text(content_type: str | None) -> bool:
    """Without a type a body is taken for JSON, as the routes take it."""
    return not content_type or any(kind in content_type for kind in _TEXTS)
