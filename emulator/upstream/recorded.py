"""A turn of the trace of the request that is served: what is sent to an upstream, and when what came back.

Where nothing is recorded the reply is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from emulator import traces
from emulator.errors import UpstreamFailed
from emulator.traces import Trace, Turn
from emulator.upstream.body import Body
from emulator.upstream.interface import Chat, Chunk, UpstreamReply
from emulator.upstream.wrapped import WrappedReply

if TYPE_CHECKING:
    from emulator.upstream.pass_through import PassedOn


def recorded(
    upstream: str,
    messages: Chat,
    fields: Mapping[str, Any],
    open_reply: Callable[[], UpstreamReply],
) -> UpstreamReply:
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
    return _Recorded(reply, trace, turn)


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


@dataclass
class _Recorded(WrappedReply):
    trace: Trace
    turn: Turn

    def left(self) -> None:
        self.turn.ended = self.trace.now()

    def __iter__(self) -> Iterator[Chunk]:
        try:
            chunks = iter(self.reply)
            for chunk in chunks:
                if _says(chunk):
                    self.turn.first = self.trace.now()
                    yield chunk
                    break
                yield chunk
            yield from chunks
        except UpstreamFailed as error:
            self.turn.error = error.message
            raise


def _says(chunk: Chunk) -> bool:
    """Whether a chunk has more than the role."""
    return any(
        value
        for choice in chunk.get("choices") or ()
        for name, value in (choice.get("delta") or {}).items()
        if name != "role"
    )
