"""Record an answer's events in its trace. Looks at each event once, and stores no text of a delta."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

from emulator.core.client_disconnect import has_disconnected
from emulator.core.errors import EmulatorError
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    CodeFinished,
    Finish,
    HostedCallStarted,
    RefusalDelta,
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
                if isinstance(event, Finish):
                    _note_end(trace)
                yield event
            _note_end(trace)
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
            words = f"{name} runs when the next request approves it."
            trace.add_note("needs-approval", words, "send an mcp_approval_response")
            _record_call(trace, ToolCall(call_id, name, arguments))
        case HostedCallStarted(name=name):
            trace.call_count += 1
            if len(trace.hosted) < _MAX_STORED:
                trace.hosted.append(name)
        case RefusalDelta():
            _note_refusal(trace)
        case CodeFinished():
            if len(trace.cells) < _MAX_STORED:
                trace.cells.append(event)
        case Finish():
            trace.finish_reason = event.reason
            return
    if trace.first_output is None:
        trace.first_output = trace.now()


def _note_refusal(trace: Trace) -> None:
    trace.add_note("refusal", "The model refused to answer, in a field of its own.")


def _note_end(trace: Trace) -> None:
    """Note an answer without a call for which the client offers tools."""
    if trace.has_acted or not trace.tools:
        return
    if trace.finish_reason == "content_filter":
        words = "The model server's content filter ended the reply."
        trace.add_note("filtered", words, "only the server can allow more")
    elif trace.finish_reason == "length":
        turn = trace.turns[-1] if trace.turns else None
        thinks = turn is not None and any(turn.reasoning) and not any(turn.reply)
        place = "in its reasoning" if thinks else "before it made a call"
        less = "ask for less reasoning (reasoning_effort), or " * thinks
        way = f"{less}raise max_tokens or the context length of the model server"
        trace.add_note("cut-off", f"The reply was cut off {place} (length).", way)
    elif trace.offers_tools and not (trace.has_results or trace.why_no_call):
        trace.add_note("no-call", "The model answered in words.", "; ".join(_ways_to_call(trace)))


def _ways_to_call(trace: Trace) -> Iterator[str]:
    yield 'tool_choice "required" (Messages: {"type": "any"}) asks for a call'
    yield "`tool-emulator fit` finds the way of calling that suits this model"
    if trace.mode == "native":
        yield 'the setting tools = "emulate" asks the model for Python instead'
    if trace.deferred:
        yield "a higher tool_tokens describes more tools in the prompt"


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
        if (choice.get("delta") or {}).get("refusal"):
            _note_refusal(trace)
    if event.call is not None:
        _record_call(trace, event.call)
