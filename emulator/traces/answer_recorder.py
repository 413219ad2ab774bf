"""Record an answer's events in its trace. Looks at each event once, and stores no text of a delta."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from emulator.core.client_disconnect import has_disconnected
from emulator.core.errors import EmulatorError
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    CodeFinished,
    Finish,
    HostedCallStarted,
    RelayedChunk,
    ToolCall,
    UpstreamAccepted,
)
from emulator.traces.trace import RelayedCall, Trace

_MAX_STORED = 1000
"""Calls, or cells, of one trace."""


def record_answer(
    trace: Trace, events: Generator[AnswerEvent, None, None]
) -> Generator[AnswerEvent, None, None]:
    """Yield the same events, and record them in ``trace``."""
    with closing(events):
        try:
            for event in events:
                if isinstance(event, RelayedChunk):
                    _record_chunk(trace, event.chunk)
                else:
                    _record_event(trace, event)
                yield event
        except EmulatorError as error:
            if not has_disconnected():  # otherwise the disconnect itself stopped the answer
                trace.set_error(error.message, error.code)
            raise


def _record_event(trace: Trace, event: AnswerEvent) -> None:
    match event:
        case UpstreamAccepted():
            trace.turns_saved += event.turns_saved
            trace.container = event.container_id or trace.container
            return
        case ToolCall():
            _record_call(trace, event)
        case ApprovalRequested(call_id, _, name, arguments):
            trace.unapproved.append(name)
            _record_call(trace, ToolCall(call_id, name, arguments))
        case HostedCallStarted(name=name):
            trace.call_count += 1
            if len(trace.hosted) < _MAX_STORED:
                trace.hosted.append(name)
        case CodeFinished():
            if len(trace.cells) < _MAX_STORED:
                trace.cells.append(event)
        case Finish():
            trace.finish_reason = event.reason
            return
    if trace.first_output is None:
        trace.first_output = trace.now()


def _record_call(trace: Trace, call: ToolCall) -> None:
    if trace.first_call is None:
        trace.first_call = trace.now()
    trace.call_count += 1
    if len(trace.calls) < _MAX_STORED:
        trace.calls.append(call)


def _record_chunk(trace: Trace, chunk: dict[str, Any]) -> None:
    if trace.first_output is None:
        trace.first_output = trace.now()
    for choice in chunk.get("choices") or ():
        if reason := choice.get("finish_reason"):
            trace.finish_reason = reason
        if (delta := choice.get("delta")) and "tool_calls" in delta:
            for piece in delta["tool_calls"] or ():
                if trace.first_call is None:
                    trace.first_call = trace.now()
                function = piece["function"]
                if "name" in function:  # the first piece of a call; others may repeat its id
                    trace.call_count += 1
                    call = RelayedCall(piece["id"], function["name"])
                    if len(trace.relayed_calls) < _MAX_STORED:
                        trace.relayed_calls.append(call)
                if trace.call_count <= _MAX_STORED:
                    trace.relayed_calls[-1].pieces.append(function.get("arguments") or "")
