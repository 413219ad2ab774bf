"""Answers of the proxy as Flask responses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast, get_args

from flask import Response, g, request

from emulator import json_codec
from emulator.errors import BadRequest
from emulator.events import UpstreamAccepted
from emulator.settings import Order
from emulator.web.routes.streaming import EventStream

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


def json_reply(value: object, status: int = 200) -> Response:
    return Response(json_codec.dumps(value), status, mimetype="application/json")


def stream_reply(stream: EventStream | Iterable[bytes]) -> Response:
    response = _StreamResponse(stream, mimetype="text/event-stream")
    response.headers["cache-control"] = "no-cache"
    response.headers["x-accel-buffering"] = "no"
    return response


class _StreamResponse(Response):
    """The server has the pieces of its body as they are: Werkzeug would look at each for text to encode."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(cast("Iterable[bytes]", self.response))

    def get_app_iter(self, environ: WSGIEnvironment) -> Iterable[bytes]:
        """As the base class. The server calls `close` too."""
        del environ
        return self


def client() -> str:
    """Whose request this is: equal for requests with the same key. Nobody sees what another keeps here."""
    name: str = g.client
    return name


def order() -> Order | None:
    """What the request's header says of which calls leave together. Raises `BadRequest`."""
    said = request.headers.get(_ORDER, "").strip().lower()
    for known in _ORDERS:
        if said == known:
            return known
    if said:
        raise BadRequest(
            f"The header {_ORDER} is {said[:40]!r}; it can be {', '.join(_ORDERS)}.", _ORDER
        )
    return None


_ORDER = "x-emulator-order"
_ORDERS: tuple[Order, ...] = get_args(Order)


def tell(response: Response, opened: object, dropped: Sequence[str]) -> Response:
    """The response, with headers on how the answer came about.

    ``opened`` is its first event, if that is there already; ``dropped`` are types of tools left out.
    """
    if dropped:
        named = (re.sub(r"[^\w.-]", "_", kind[:64], flags=re.ASCII) for kind in dropped[:16])
        response.headers["x-emulator-dropped-tools"] = ", ".join(named)
    if isinstance(opened, UpstreamAccepted):
        response.headers.update(opened.headers)
        response.headers["x-emulator-turns-saved"] = str(opened.turns_saved)
        if opened.container_id:
            response.headers["x-emulator-container"] = opened.container_id
    return response
