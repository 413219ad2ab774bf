"""Count each request, and write one line about it to the log.

The line is written when the response is closed: for a stream, at its end. It contains no prompt and no
answer. A client that disconnected before the end is logged with ``state=left``.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from flask import Response

from emulator.core import metrics
from emulator.core.client_keys import grant_of
from emulator.traces import Trace
from emulator.web.middleware.error_replies import speaks_anthropic
from emulator.web.middleware.in_flight import RequestInFlight

log = structlog.get_logger()

_ANSWER_FIELDS = frozenset({"calls", "repairs", "turns", "turns_saved"})
"""Fields that mean nothing for an executed cell or for a request that is passed through."""
_TOKENS = frozenset({"tokens_in", "tokens_out", "tokens_estimated"})
_MAX_CHARS = 200
"""Longest text of a client in a line: a model's name, a path."""


def begin_response(flight: RequestInFlight, response: Response, *, is_recorded: bool) -> None:
    """Runs when the response begins: counts the request, and logs it at its end unless `log_answer` does."""
    request, error = flight.request, flight.error
    response.headers["x-request-id"] = flight.id
    if speaks_anthropic():
        response.headers["request-id"] = flight.id
    # The rule, not the path: a client must not be able to create labels.
    rule = request.url_rule.rule if request.url_rule else "unknown"
    metrics.REQUESTS.labels(rule, str(response.status_code)).inc()
    metrics.SECONDS.observe(time.perf_counter() - flight.began)
    if is_recorded:
        return
    # The inspector's pages poll; operators do not need a line for each.
    write = log.debug if request.blueprint == "inspector" else log.info
    fields: dict[str, Any] = {
        "request_id": flight.id,
        "method": request.method,
        "path": request.path[:_MAX_CHARS],
        "status": response.status_code,
        "client": grant_of(flight.client).name if flight.is_recognized else "",
        "code": error.code or error.type if error else "",
    }

    def log_request() -> None:
        if flight.disconnect.happened:
            fields["state"] = "left"
        ms = round(1000 * (time.perf_counter() - flight.began), 1)
        write("request", **{name: value for name, value in fields.items() if value != ""}, ms=ms)

    flight.on_close(log_request)


def log_turns(trace: Trace) -> None:
    """Log what the model was sent and what it replied, for `log_bodies`."""
    for n, turn in enumerate(trace.turns, 1):
        which = {"request_id": trace.id, "turn": n}
        log.info("prompt", **which, body=turn.request.decode())
        if turn.operation != "chat":
            continue
        received = b"".join(data for _, data in turn.wire.events)
        reply = "".join(turn.reply) or received.decode(errors="replace")
        log.info("reply", **which, body=reply, reasoning="".join(turn.reasoning) or None)


def log_answer(trace: Trace) -> None:
    """Log a recorded request whose response is complete or whose client has disconnected."""
    fields: dict[str, Any] = {
        "request_id": trace.id,
        "method": trace.method,
        "path": trace.path,
        "status": trace.status,
        "ms": round(1000 * (trace.seconds or 0), 1),
        "first_ms": None if trace.first_output is None else round(1000 * trace.first_output, 1),
        "model": trace.model[:_MAX_CHARS],
        "client": trace.client_name,
        "upstream": trace.upstream,
        "state": trace.state,
        "calls": trace.call_count,
        "offered": len(trace.tools) if trace.tools and not trace.call_count else None,
        "repairs": trace.repairs,
        "turns": len(trace.turns),
        "turns_saved": trace.turns_saved,
        "tokens_in": trace.tokens_in,
        "tokens_out": trace.tokens_out,
        "tokens_estimated": trace.is_estimated or None,
        "code": trace.code,
        "notes": [*dict.fromkeys(note.kind for note in trace.notes)] or None,
    }
    if trace.mode == "passed" or trace.cell:
        omitted = (
            _ANSWER_FIELDS if trace.tokens_in or trace.tokens_out else _ANSWER_FIELDS | _TOKENS
        )
        fields = {name: value for name, value in fields.items() if name not in omitted}
    log.info("request", **{n: value for n, value in fields.items() if value not in (None, "")})
