"""Record turns in the trace of the current request: what was sent to which upstream, and when it replied.

Without a trace nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from emulator import traces
from emulator.errors import UpstreamFailed
from emulator.traces import Trace, Turn
from emulator.upstream.interface import Messages, UpstreamReply
from emulator.upstream.pass_through import PassedOnResponse
from emulator.upstream.reply import Received


def open_recorded(
    upstream: str,
    messages: Messages,
    fields: Mapping[str, Any],
    open_reply: Callable[[], UpstreamReply],
) -> UpstreamReply:
    """Open a reply and record it as a turn. Raises `UpstreamFailed` as ``open_reply`` does."""
    trace = traces.current.get()
    if trace is None:
        return open_reply()
    turn = trace.begin_turn(upstream, messages, fields)
    with _opening(trace, turn):
        reply = open_reply()

    def first_output() -> None:
        turn.first_output = trace.now()

    def close(received: Received) -> None:
        turn.ended = trace.now()
        turn.error = received.error.message if received.error else ""

    reply.on_first_output(first_output)
    reply.on_close(close)
    return reply


def pass_on_recorded(
    upstream: str, path: str, model: str | None, send: Callable[[], PassedOnResponse]
) -> PassedOnResponse:
    """Record a passed-on request, but not its bodies. Raises `UpstreamFailed` as ``send`` does."""
    trace = traces.current.get()
    if trace is None:
        return send()
    trace.mode, trace.upstream, trace.model = "passed", upstream, model or ""
    turn = trace.begin_turn(upstream, (), {"model": model} if model else {})
    turn.operation = path
    with _opening(trace, turn):
        response = send()
    body = response.body

    def first_data(_: bytes) -> None:
        if turn.first_output is None:
            turn.first_output = trace.first_output = trace.now()

    def close() -> None:
        turn.ended = trace.now()
        if body.error is not None:
            turn.error = body.error.message
            trace.set_error(body.error.message, body.error.code)

    body.on_data(first_data)
    body.on_close(close)
    return response


@contextmanager
def _opening(trace: Trace, turn: Turn) -> Iterator[None]:
    try:
        yield
    except UpstreamFailed as error:
        turn.ended, turn.error = trace.now(), error.message
        raise
    turn.opened = trace.now()
