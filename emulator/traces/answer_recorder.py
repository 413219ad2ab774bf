"""Record an answer's events in its trace. Looks at each event once, and stores no text of a delta."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

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
from emulator.traces.trace import Trace

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
                    _record_chunk(trace, event)
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


def _record_chunk(trace: Trace, event: RelayedChunk) -> None:
    if trace.first_output is None:
        trace.first_output = trace.now()
    for choice in event.chunk.get("choices") or ():
        trace.finish_reason = choice.get("finish_reason") or trace.finish_reason
    if event.call is not None:
        _record_call(trace, event.call)
