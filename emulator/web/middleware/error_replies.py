"""Whatever a request fails of, as its client is told: in OpenAI's shape, or in Anthropic's."""

from __future__ import annotations

import structlog
from flask import Response, g, request
from werkzeug.exceptions import HTTPException

from emulator import departure, json_codec, traces
from emulator.anthropic.writer import error_body
from emulator.errors import (
    BadRequest,
    ClientDisconnected,
    EmulatorError,
    MethodNotAllowed,
    NotFound,
    TooLarge,
)
from emulator.web.server.bodies import BODY_ERRORS

log = structlog.get_logger()

_KINDS = {404: NotFound, 405: MethodNotAllowed, 413: TooLarge}


def error_reply(error: Exception) -> Response:
    """The response for an error before a stream has begun; of ours it says no more than that we failed."""
    client = departure.current.get()
    if client is not None and client.left:
        # Whatever has failed was stopped for that.
        error = ClientDisconnected("The client has left.")
    elif isinstance(error, HTTPException):
        kind = _KINDS.get(error.code or 500, BadRequest)
        error = kind(f"{request.method} {request.path}: {error.description}")
    elif isinstance(error, BODY_ERRORS):
        error = BadRequest(f"The request's body cannot be read: {error}")
    elif not isinstance(error, EmulatorError):
        log.error("request failed", exc_info=error)
        error = EmulatorError("The proxy failed; its log says why.")
    if error.status >= 500:
        log.warning("failed", reason=error.message, code=error.code)
    if (trace := traces.current.get()) is not None:
        trace.failed(error.message, error.code)
    body = error_body(error, g.request_id) if speaks_anthropic() else error.body()
    response = Response(json_codec.dumps(body), error.status, mimetype="application/json")
    response.headers.update(error.headers)
    return response


def speaks_anthropic() -> bool:
    """Return True if the current request belongs to the Messages API, whose errors have another shape."""
    return request.path.removeprefix("/v1").startswith("/messages")
