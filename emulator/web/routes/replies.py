"""Flask responses for answers, in one piece or as a stream, and what routes read from a request's headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from flask import Response
from pydantic import BaseModel

from emulator import traces
from emulator.conversation.answer_request import Omitted
from emulator.core import json_codec
from emulator.core.errors import BadRequest
from emulator.core.events import UpstreamAccepted
from emulator.core.protocol import parse_body
from emulator.fronts.responses.background import BackgroundAnswer, BackgroundResponses
from emulator.history import current_turn, turn_request
from emulator.settings.settings import Order, Settings
from emulator.web.middleware.in_flight import current
from emulator.web.routes.streaming import CHAT, Events, EventStream, Frames

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

Parsed = TypeVar("Parsed")
Model = TypeVar("Model", bound=BaseModel)
_ORDER_HEADER = "x-emulator-order"
_MAX_NOTES = 8
_ORDERS: tuple[Order, ...] = get_args(Order)


def client() -> str:
    """Return the name of the client that sent the current request: equal for requests with the same key."""
    return current.get().client


def parsed_body(parse: Callable[[bytes], Parsed], empty: bytes = b"") -> Parsed:
    """Parse the current request's body, or ``empty`` if it has none; see `RequestInFlight.release_body`."""
    flight = current.get()
    body = flight.body or empty
    headers = flight.request.headers
    key, count = headers.get("idempotency-key", ""), headers.get("x-stainless-retry-count", "")
    current_turn.set(turn_request(key, count, body))
    parsed = parse(body)
    flight.release_body()
    return parsed


def body_as(model: type[Model], empty: bytes = b"") -> Model:
    """Parse the current request's body as a ``model``. Raises `BadRequest` as `parse_body` does."""
    return parsed_body(lambda body: parse_body(body, model), empty)


def order() -> Order | None:
    """Return which calls may share a message according to the request's header. Raises `BadRequest`."""
    value = current.get().request.headers.get(_ORDER_HEADER, "").strip().lower()
    if value and value not in _ORDERS:
        raise BadRequest(
            f"The header {_ORDER_HEADER} is {value[:40]!r}; it can be {', '.join(_ORDERS)}.",
            _ORDER_HEADER,
        )
    return value or None


def json_reply(value: object, status: int = 200) -> Response:
    return Response(json_codec.dumps(value), status, mimetype="application/json")


def start_in_background(background: BackgroundResponses, answer: BackgroundAnswer) -> Any:
    """Start ``answer``; it counts as the client's open request until it ends. Raises as `start`."""
    flight = current.get()
    release = flight.hand_over_place()
    try:
        return background.start(answer, release)
    except BaseException:
        flight.hold_place(release)
        raise


def plain_answer(
    events: Iterator[Any], fold: Callable[[Iterator[Any]], object], omitted: Omitted
) -> Response:
    """Return a non-streaming answer. ``fold`` builds it from the events after the first."""
    accepted = next(events)
    return with_answer_headers(json_reply(fold(events)), accepted, omitted)


def streamed_answer(
    events: Events, settings: Settings, omitted: Omitted, frames: Frames = CHAT
) -> Response:
    """Return an answer as a stream. An error that occurs quickly is raised here, so it has its own status."""
    stream = EventStream(events, settings.ping_seconds, frames)
    first = stream.first()
    return with_answer_headers(stream_reply(stream), first, omitted)


def stream_reply(stream: EventStream | Iterable[bytes]) -> Response:
    response = _StreamResponse(stream, mimetype="text/event-stream")
    response.headers["cache-control"] = "no-cache"
    response.headers["x-accel-buffering"] = "no"
    if isinstance(stream, EventStream):
        response.event_stream = stream
    return response


class _StreamResponse(Response):
    event_stream: EventStream | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Like the base class, but lets `pings` write to the client."""
        body, status, headers = self.get_wsgi_response(environ)
        write = start_response(status, headers)
        if self.event_stream is not None:
            connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
            descriptor = connection.fileno() if connection is not None else -1
            self.event_stream.pinged.connect(write, descriptor)
        return body


_MAX_NAMES = 100
"""In a header."""


def _as_header(names: Sequence[str]) -> str:
    """No text that is not a name."""
    listed = (re.sub(r"[^\w.-]", "_", name[:64], flags=re.ASCII) for name in names[:_MAX_NAMES])
    return ", ".join(listed)


def with_omitted(response: Response, omitted: Omitted) -> Response:
    """Add the headers that name what of the request has no effect, and return the response."""
    for header, names in (
        ("x-emulator-dropped-tools", omitted.tools),
        ("x-emulator-ignored", omitted.names),
    ):
        if names:
            response.headers[header] = _as_header(names)
    return response


def with_answer_headers(response: Response, first: object, omitted: Omitted) -> Response:
    """Add headers about how the answer was made, and return the response.

    ``first`` is the answer's first event, or None if it did not arrive in time.
    """
    trace = traces.current.get()
    if isinstance(first, UpstreamAccepted):
        omitted = omitted._replace(names=(*omitted.names, *first.ignored))
    with_omitted(response, omitted)
    if omitted.names and trace is not None:
        listed = _as_header(omitted.names)
        trace.add_note("ignored-fields", f"These fields and betas have no effect: {listed}.")
    notes = () if trace is None else tuple(dict.fromkeys(one.kind for one in trace.notes))
    named: dict[str, tuple[str, ...]] = {
        "x-emulator-notes": notes[:_MAX_NOTES],
        "x-emulator-unavailable-tools": trace.unavailable_servers if trace is not None else (),
    }
    for header, names in named.items():
        if names:
            response.headers[header] = _as_header(names)
    if isinstance(first, UpstreamAccepted):
        response.headers.update(first.headers)
        response.headers["x-emulator-turns-saved"] = str(first.turns_saved)
        if first.container_id:
            response.headers["x-emulator-container"] = first.container_id
    return response
