"""What an answer's events tell of it. One look at each event, and nothing is kept of a delta's text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from emulator.client_disconnect import has_disconnected
from emulator.errors import EmulatorError
from emulator.events import (
    AnswerEvent,
    CodeFinished,
    Finish,
    RelayedChunk,
    ToolCall,
    UpstreamAccepted,
    Usage,
)
from emulator.traces.trace import Trace

_MOST_KEPT = 1000
"""Calls, or cells, of one trace."""


def watched(
    trace: Trace, events: Generator[AnswerEvent, None, None]
) -> Generator[AnswerEvent, None, None]:
    """The same events; ``trace`` learns of each what it is to know."""
    with closing(events):
        try:
            for event in events:
                if isinstance(event, RelayedChunk):
                    _see_chunk(trace, event.chunk)
                else:
                    _see(trace, event)
                yield event
        except EmulatorError as error:
            if not has_disconnected():  # else it failed because it was stopped for that
                trace.failed(error.message, error.code)
            raise


def _see(trace: Trace, event: AnswerEvent) -> None:
    match event:
        case UpstreamAccepted():
            trace.turns_saved += event.turns_saved
            trace.container = event.container_id or trace.container
            return
        case ToolCall():
            if trace.called is None:
                trace.called = trace.now()
            trace.call_count += 1
            if len(trace.calls) < _MOST_KEPT:
                trace.calls.append(event)
        case CodeFinished():
            if len(trace.cells) < _MOST_KEPT:
                trace.cells.append(event)
        case Finish():
            _add(trace, event.usage)
            trace.finish_reason = event.reason
            return
    if trace.said is None:
        trace.said = trace.now()


def _see_chunk(trace: Trace, chunk: dict[str, Any]) -> None:
    if trace.said is None:
        trace.said = trace.now()
    for choice in chunk.get("choices") or ():
        if reason := choice.get("finish_reason"):
            trace.finish_reason = reason
        if (delta := choice.get("delta")) and "tool_calls" in delta:
            for piece in delta["tool_calls"] or ():
                if trace.called is None:
                    trace.called = trace.now()
                # The first piece of a call has its id.
                trace.call_count += bool(piece.get("id"))
    if usage := chunk.get("usage"):
        told = (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
        _add(trace, Usage(*told))


def _add(trace: Trace, usage: Usage) -> None:
    trace.usage = Usage(
        trace.usage.prompt_tokens + usage.prompt_tokens,
        trace.usage.completion_tokens + usage.completion_tokens,
        usage.details or trace.usage.details,
    )
