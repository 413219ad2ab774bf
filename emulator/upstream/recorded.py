"""A turn of the trace of the request that is served: what is sent to an upstream, and when what came back.

Where nothing is recorded the reply is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from emulator import traces
from emulator.errors import UpstreamFailed
from emulator.traces import Trace, Turn
from emulator.upstream.interface import Chat, Chunk, UpstreamReply


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


@dataclass
class _Recorded:
    reply: UpstreamReply
    trace: Trace
    turn: Turn

    def __enter__(self) -> Self:
        self.reply.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.turn.ended = self.trace.now()
        self.reply.__exit__(*exc)

    def __iter__(self) -> Iterator[Chunk]:
        try:
            for chunk in self.reply:
                if self.turn.first is None and _says(chunk):
                    self.turn.first = self.trace.now()
                yield chunk
        except UpstreamFailed as error:
            self.turn.error = error.message
            raise

    @property
    def headers(self) -> Mapping[str, str]:
        return self.reply.headers


def _says(chunk: Chunk) -> bool:
    """Whether a chunk has more than the role."""
    return any(
        value
        for choice in chunk.get("choices") or ()
        for name, value in (choice.get("delta") or {}).items()
        if name != "role"
    )
