"""A turn of the trace of the request that is served: what is sent to an upstream, and when what came back.

Where nothing is recorded the reply is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emulator import traces
from emulator.errors import UpstreamFailed
from emulator.traces import Trace, Turn
from emulator.upstream.body import Body
from emulator.upstream.interface import Chat, Reply
from emulator.upstream.reply import Heard

if TYPE_CHECKING:
    from emulator.upstream.pass_through import PassedOn


def recorded(
    upstream: str,
    messages: Chat,
    fields: Mapping[str, Any],
    open_reply: Callable[[], Reply],
) -> Reply:
    """The opened reply, recorded. Raises `UpstreamFailed` as ``open_reply`` does."""
    trace = traces.current.get()
    if trace is None:
        return open_reply()
    turn = trace.turn(upstream, messages, fields)
    try:
        reply = open_reply()
    except UpstreamFailed as error:
        turn.ended, turn.error = trace.now(), error.message
        raise
    turn.opened = trace.now()

    def begun() -> None:
        turn.first = trace.now()

    def left(heard: Heard) -> None:
        turn.ended = trace.now()
        turn.error = heard.error.message if heard.error else ""

    reply.on_begun(begun)
    reply.on_left(left)
    return reply


def recorded_pass(
    upstream: str, path: str, model: str | None, send: Callable[[], PassedOn]
) -> PassedOn:
    """What is passed on as it is, recorded: not what is in it. Raises `UpstreamFailed` as ``send`` does."""
    trace = traces.current.get()
    if trace is None:
        return send()
    trace.mode, trace.upstream, trace.model = "passed", upstream, model or ""
    turn = trace.turn(upstream, (), {"model": model} if model else {})
    turn.operation = path
    try:
        answer = send()
    except UpstreamFailed as error:
        turn.ended, turn.error = trace.now(), error.message
        raise
    turn.opened = trace.now()
    return replace(answer, body=_recorded_body(answer.body, trace, turn))


def _recorded_body(body: Body, trace: Trace, turn: Turn) -> Body:
    def pieces() -> Iterator[bytes]:
        try:
            for data in body:
                if turn.first is None:
                    turn.first = trace.said = trace.now()
                yield data
        except UpstreamFailed as error:
            turn.error = error.message
            trace.failed(error.message, error.code)
            raise

    def finish() -> None:
        turn.ended = trace.now()
        body.close()

    return Body(pieces(), finish)
