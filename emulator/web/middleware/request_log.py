"""What is noted of every request: its id, which its client is told, metrics, and one line in the log.

The line is written when the response has left: for a stream, at its end. A client that did not wait for that
is said to have left. What is asked and answered is in no line.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from flask import Response, g, request

from emulator import departure, metrics, traces
from emulator.client_keys import grant_of
from emulator.events import new_id
from emulator.traces import Trace
from emulator.web.middleware.error_replies import speaks_anthropic

log = structlog.get_logger()

_OF_ANSWERS = frozenset({"calls", "repairs", "turns", "turns_saved", "tokens_in", "tokens_out"})
"""Fields that say nothing of a cell, or of what is passed on."""
_MOST_CHARS = 200
"""Of what clients name: a model, a path."""


def begin() -> None:
    """Before all else: whatever is logged from here on names the request."""
    g.began = time.perf_counter()
    g.request_id = new_id("req_")
    traces.current.set(None)  # this thread may have served another request before
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)


def end(response: Response) -> Response:
    """When the response begins."""
    response.headers["x-request-id"] = g.request_id
    if speaks_anthropic():
        response.headers["request-id"] = g.request_id
    began = g.began
    # The rule, not the path: what clients make up must not become labels.
    rule = request.url_rule.rule if request.url_rule else "unknown"
    metrics.REQUESTS.labels(rule, str(response.status_code)).inc()
    metrics.SECONDS.observe(time.perf_counter() - began)
    if traces.current.get() is not None:
        return response  # `answered` comes when it has left
    caller = grant_of(g.get("client", "")).name
    client = departure.current.get()
    # Pages that are looked at, and ask for news all the time, are no news to operators.
    tell = log.debug if request.blueprint == "inspector" else log.info
    said = {
        "request_id": g.request_id,
        "method": request.method,
        "path": request.path[:_MOST_CHARS],
        "status": response.status_code,
        **({"client": caller} if caller else {}),
    }

    @response.call_on_close
    def write() -> None:
        left = {"state": "left"} if client is not None and client.left else {}
        tell("request", **said, **left, ms=round(1000 * (time.perf_counter() - began), 1))

    return response


def answered(trace: Trace) -> None:
    """An answer has left, or its client has."""
    log.info("request", **_fields(trace))


def _fields(trace: Trace) -> dict[str, Any]:
    """Those that say something; times in milliseconds."""
    fields = {
        "request_id": trace.id,
        "method": trace.method,
        "path": trace.path,
        "status": trace.status,
        "ms": round(1000 * (trace.seconds or 0), 1),
        "first_ms": None if trace.said is None else round(1000 * trace.said, 1),
        "model": trace.model[:_MOST_CHARS],
        "client": trace.client_name,
        "upstream": trace.upstream,
        "state": trace.state,
        "calls": trace.call_count,
        "repairs": trace.repairs,
        "turns": len(trace.turns),
        "turns_saved": trace.turns_saved,
        "tokens_in": sum(turn.prompt_tokens for turn in trace.turns),
        "tokens_out": sum(turn.completion_tokens for turn in trace.turns),
        "code": trace.code,
    }
    if trace.mode == "passed" or trace.cell:
        fields = {name: value for name, value in fields.items() if name not in _OF_ANSWERS}
    return {name: value for name, value in fields.items() if value not in (None, "")}
