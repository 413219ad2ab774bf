"""Turn an upstream's refusals and a transport's failures into `UpstreamFailed`, and count them.

A prompt that does not fit the model's context is recognized in each server's words, since servers differ in
status, type and words, and clients shorten their prompt if they see OpenAI's code. Sources: the servers'
issues (tests/upstream/test_context_errors.py names them), and for the others the tests of LiteLLM's
exception mapping and of pi's overflow detection, which quote the servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from emulator.core import json_codec, metrics
from emulator.core.client_disconnect import has_disconnected
from emulator.core.errors import UpstreamFailed

RETRY_ADVICE = ("retry-after", "retry-after-ms", "x-should-retry")
_MAX_QUOTED = 500
QUOTED = 200
_MAX_HEADERS = 32
_KINDS = {
    401: "unauthorized",
    403: "unauthorized",
    408: "timeout",
    429: "rate_limited",
    504: "timeout",
}


def count_failure(upstream: str, error: UpstreamFailed, kind: str = "") -> None:
    """Count ``error``, unless the request failed because its client disconnected."""
    if not has_disconnected():
        metrics.UPSTREAM_ERRORS.labels(upstream, kind or _kind(error)).inc()


def _kind(error: UpstreamFailed) -> str:
    if error.code == "upstream_down":
        return "unreachable"
    return _KINDS.get(error.status, "refused" if error.status < 500 else "failed")


def connection_failure(error: HTTPError, upstream: str = "The upstream") -> UpstreamFailed:
    """The error for a request that has no response. The code ``upstream_down`` says that nothing was sent."""
    match error:
        case NewConnectionError() | SSLError() | ProxyError():
            origin = error.original_error if isinstance(error, ProxyError) else error
            reason = str(origin.__cause__ or origin)
            if isinstance(error, ProxyError):
                reason = f"its proxy (HTTP_PROXY or the like; NO_PROXY lists exceptions): {reason}"
            if "WRONG_VERSION_NUMBER" in reason:
                reason += "; does it speak http://, not https://?"
            message = f"{upstream} cannot be reached: {reason}"
            return UpstreamFailed(message, code="upstream_down")
        case ConnectTimeoutError():
            message = f"{upstream} cannot be reached: no connection within the time allowed."
            return UpstreamFailed(message, code="upstream_down")
        case ReadTimeoutError():
            return UpstreamFailed(f"{upstream} did not answer in time.", status=504)
    return UpstreamFailed(f"{upstream} broke off before it answered: {error}")


def broken_response(error: Exception, upstream: str = "The upstream") -> UpstreamFailed:
    """The error for a response that ends in the middle."""
    if isinstance(error, ReadTimeoutError):
        return silence(upstream)
    return UpstreamFailed(f"{upstream} broke off its answer: {error}")


def silence(upstream: str = "The upstream") -> UpstreamFailed:
    return UpstreamFailed(f"{upstream} fell silent in the middle of its answer.", status=504)


def refusal(
    status: int, headers: Mapping[str, str], data: bytes, message_prefix: str = ""
) -> UpstreamFailed:
    """The error for a response whose status is not 2xx: with its status, message and retry advice.

    ``data`` is the beginning of the body. A redirection becomes a 502: following it would send the operator's
    key to another server.
    """
    body: object = None
    with suppress(json_codec.NotJSON):
        body = json_codec.loads(data)
    error = body.get("error", body) if isinstance(body, dict) else body
    fields = error if isinstance(error, dict) else {}
    message = message_of(error) or data[:_MAX_QUOTED].decode(errors="replace").strip()
    redirects = status < 400
    code = fields.get("code")
    error_type = str(fields.get("type") or "upstream_error")
    failure = UpstreamFailed(
        f"{message_prefix}{message or f'nothing (status {status})'}",
        param=param if isinstance(param := fields.get("param"), str) else None,
        code="upstream_redirects" if redirects else None if code is None else str(code),
        headers=select_headers(headers, (*RETRY_ADVICE, "x-ratelimit-")),
        status=502 if redirects else status,
        type=error_type,
    )
    return recognize_context_error(failure)


def quote(value: object) -> str:
    """The beginning of what an upstream sent, bytes or a JSON value, for an error message."""
    text = value if isinstance(value, bytes) else json_codec.dumps(value)
    quoted = text[:QUOTED].decode(errors="replace")
    return quoted if len(text) <= QUOTED else f"{quoted}..."


def select_headers(headers: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """The first 32 headers whose names begin with one of ``prefixes``; names in lower case."""
    lowered = ((name.lower(), value) for name, value in headers.items())
    selected = ((name, value) for name, value in lowered if name.startswith(prefixes))
    return dict(islice(selected, _MAX_HEADERS))


def message_of(error: object) -> str:
    """The message of an error in OpenAI's shape, in FastAPI's (``detail``), or of a plain string; else ""."""
    if isinstance(error, str):
        return error
    if not isinstance(error, Mapping):
        return ""
    for name in ("message", "detail", "error"):
        if isinstance(message := error.get(name), str) and message:
            return message
    problems = error.get("detail")
    if isinstance(problems, list):  # pydantic: one item for each invalid field
        return "; ".join(str(item.get("msg")) for item in problems[:8] if isinstance(item, Mapping))
    return ""


CONTEXT_CODE = "context_length_exceeded"
_SIZE = r"(?:context|model|prompt|input)[ ](?:length|window|size|limit)s?"
_WORDS = re.compile(
    rf"""
      context_length_exceeded | exceed_context_size | context_?window_?exceeded
    | maximum[ ](?:allowed[ ])?{_SIZE} | max(?:imum)?_?[ ]?(?:model_len|context[ ]length)
    | {_SIZE}[ ](?:has[ ]been[ ]|is[ ])?exceed | exceed[^.:]{{0,60}}?\bcontext[ ](?:length|window|size|limit)
    | (?:longer|greater|larger)[ ]than[ ]the[ ](?:model's[ ]|maximum[ ])*{_SIZE}
    | prompt[ ](?:is[ ])?too[ ]long | input[ ]is[ ]too[ ]long | reduce[ ]the[ ]length[ ]of[ ]the
    | maximum[ ]number[ ]of[ ]tokens[ ]allowed | exceeded[ ]model[ ]token[ ]limit
    | prompt[ ]length[ ]\(\d+\)[ ]exceeds | prompt[ ]exceeds[ ]max[ ]length
    | prompt[ ]token[ ]count[ ]of[ ]\d+[ ]exceeds | range[ ]of[ ]input[ ]length[ ]should
    | input[ ]tokens[ ]exceed | inputs`[ ](?:tokens[ ]\+|must[ ]have[ ]less[ ]than)
    | loaded[ ]with[ ]context[ ]length | current[ ]length[ ]is[ ]\d+[ ]while[ ]limit[ ]is
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_CAUSES = (401, 403, 404, 429)


def recognize_context_error(error: UpstreamFailed) -> UpstreamFailed:
    """Return the error with OpenAI's code, type and status if it is about the context's length."""
    words = f"{error.code} {error.type} {error.message}"
    if error.status in _OTHER_CAUSES or not _WORDS.search(words):
        return error
    return replace(error, code=CONTEXT_CODE, type="invalid_request_error", status=400)


def context_exceeded(tokens: int, length: int, remedy: str = "") -> UpstreamFailed:
    """The error for a prompt of about ``tokens``, which was not sent. OpenAI's words, which clients parse."""
    limit = f"This model's maximum context length is {length} tokens"
    message = f"{limit}, and the prompt has about {tokens}, so it was not sent. {remedy}"
    return recognize_context_error(UpstreamFailed(message.strip()))
