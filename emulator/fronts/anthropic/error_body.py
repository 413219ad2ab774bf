"""Errors in the shape of Anthropic's API reference ("Errors")."""

from __future__ import annotations

import re
from typing import Any

from emulator.core.errors import EmulatorError
from emulator.upstream.failures import CONTEXT_CODE

_INDEX = re.compile(r"\[(\d+)\]")

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(error: EmulatorError, request_id: str | None = None) -> dict[str, Any]:
    kind = _ERRORS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.param:
        # This API has no field for the place, and writes ``tools.0.name``.
        message = message if error.param in message else f"{error.param}: {message}"
        message = message.replace(error.param, _INDEX.sub(r".\1", error.param))
    if error.code == CONTEXT_CODE:
        # Anthropic's words, by which its clients know when to shorten the history.
        message = f"prompt is too long: {message} ({CONTEXT_CODE})"
    body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    if error.code and error.code.startswith(("thread_", "tool_reference_")):
        # By a thread's code Anthropic's SDKs know that they have to send the whole conversation again.
        body["error"]["details"] = {"error_code": error.code}
    return {**body, "request_id": request_id} if request_id else body
