"""Turn exceptions into responses, in the shape of OpenAI's, Anthropic's or Azure's errors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import structlog
from flask import Response
from werkzeug.exceptions import HTTPException

from emulator import traces
from emulator.core import json_codec
from emulator.core.errors import (
    BadRequest,
    ClientDisconnected,
    EmulatorError,
    MethodNotAllowed,
    NotFound,
    TooLarge,
)
from emulator.core.front_paths import MESSAGES
from emulator.fronts.anthropic.error_body import error_body
from emulator.web.middleware import doors
from emulator.web.middleware.in_flight import RequestInFlight, current
from emulator.web.middleware.request_body import LastResponse
from emulator.web.server.connections import BODY_ERRORS

log = structlog.get_logger()

_MODELS = "/v1/models"
_CLASSES: Mapping[int, type[EmulatorError]] = {404: NotFound, 405: MethodNotAllowed, 413: TooLarge}


def error_reply(failure: Exception) -> Response:
    """Return the response for an exception that is raised before a stream begins.

    Unexpected exceptions are logged with their traceback; the client learns only that the proxy failed.
    """
    flight = current.get()
    request, error = flight.request, _client_error(failure, flight)
    if error.status >= 500:
        log.warning("failed", reason=error.message, code=error.code)
    if (trace := traces.current.get()) is not None:
        trace.set_error(error.message, error.code)
    flight.error = error
    body = error_body(error, flight.id) if speaks_anthropic() else error.body()
    headers = {**error.headers}
    if request.path.startswith("/v1/sessions/"):  # Azure REST API Guidelines, "Handling errors"
        headers["x-ms-error-code"] = code = error.code or error.type
        body = {"error": {"code": code, "message": error.message, "target": error.param}}
    response_class = LastResponse if error.status == 413 else Response
    response = response_class(json_codec.dumps(body), error.status, mimetype="application/json")
    response.headers.update(headers)
    return response


def _client_error(error: Exception, flight: RequestInFlight) -> EmulatorError:
    request, disconnect = flight.request, flight.disconnect
    if disconnect.happened:
        # The request was stopped for that, so the exception is a consequence.
        return flight.disconnect.error or ClientDisconnected("The client has disconnected.")
    if isinstance(error, HTTPException) and (error.code or 500) < 500:
        error_class = _CLASSES.get(error.code or 400, BadRequest)
        text = doors.advice(request.path) if error.code == 404 else error.description
        return error_class(f"{request.method} {request.path}: {text}")
    if isinstance(error, BODY_ERRORS):
        return BadRequest(f"The request's body cannot be read: {error}")
    if isinstance(error, NotFound) and error.subject:
        with suppress(json_codec.NotJSON, EmulatorError):
            return error.placed(json_codec.loads(flight.body))
    if isinstance(error, EmulatorError):
        return error
    log.error("request failed", exc_info=error)
    return EmulatorError("The proxy failed; its log says why.")


def speaks_anthropic() -> bool:
    """Return True if the current request is of Anthropic's API, whose errors have another shape: by its path,
    or, where both APIs have the path, by the header that all its clients send."""
    request = current.get().request
    path = doors.meant_path(request.path)
    is_shared = path == _MODELS or path.startswith(f"{_MODELS}/")
    return path.startswith(MESSAGES) or (is_shared and "anthropic-version" in request.headers)
