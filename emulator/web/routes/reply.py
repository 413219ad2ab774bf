"""Answers of the proxy as Flask responses."""

from __future__ import annotations

from collections.abc import Iterable

from flask import Response, g

from emulator.upstream.sse import json_bytes
from emulator.web.streaming import EventStream


def json_reply(value: object, status: int = 200) -> Response:
    return Response(json_bytes(value), status, mimetype="application/json")


def stream_reply(stream: EventStream | Iterable[bytes]) -> Response:
    response = Response(stream, mimetype="text/event-stream")
    response.headers["cache-control"] = "no-cache"
    response.headers["x-accel-buffering"] = "no"
    return response


def client() -> str:
    """Whose request this is: equal for requests with the same key. Nobody sees what another keeps here."""
    return str(g.client)
