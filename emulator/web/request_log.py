"""What is noted of every request: its id, which its client is told, a line in the log, and metrics."""

from __future__ import annotations

import time

import structlog
from flask import Response, g, request

from emulator import metrics, traces
from emulator.events import new_id
from emulator.web.routes.messages import speaks_anthropic

log = structlog.get_logger()


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
    seconds = time.perf_counter() - g.began
    # The rule, not the path: what clients make up must not become labels.
    rule = request.url_rule.rule if request.url_rule else "unknown"
    metrics.REQUESTS.labels(rule, str(response.status_code)).inc()
    metrics.SECONDS.observe(seconds)
    log.info(
        "request",
        method=request.method,
        path=request.path,
        status=response.status_code,
        ms=round(1000 * seconds, 1),
    )
    return response
