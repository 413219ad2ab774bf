"""Resume a cell that is waiting in its kernel when the results of its calls arrive.

The same changes of the history end a cell and a program (`basis.what_changed`). But a cell is never
run again from its start: it may have changed variables and files. A cell that no longer waits (after a
restart, in an expired container) means an ordinary turn with the same history, never an error. Results count
wherever they are in the history; calls without a result are sent again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from emulator import traces
from emulator.core.events import (
    AnswerEvent,
    CodeComplete,
    CodeDelta,
    CodeStarted,
    ToolCall,
)
from emulator.core.protocol import Message
from emulator.history import model_view_of
from emulator.interpreter.interpreter import WaitingCell
from emulator.interpreter.interpreter_session import InterpreterSession
from emulator.programs.basis import what_changed
from emulator.programs.call_history import (
    MAX_UNANSWERED_ROUNDS,
    call_positions,
    failures_of,
    last_result,
    results_of,
    unanswered_rounds,
)
from emulator.programs.ended import EndedProgram
from emulator.programs.failures import FINAL
from emulator.programs.saved import parse_result, report_dropped
from emulator.reply.reply_cell import PREFIX, run_events
from emulator.reply.verdicts import CellResult, FinalReply
from emulator.tools.toolset import Toolset
from emulator.traces import RecordedCall, ResumedProgram
from sandbox.engine import failed_result

NO_OUTPUT = "(nothing was printed)"


def resume_cell(
    session: InterpreterSession, messages: Sequence[Message], toolset: Toolset, client: str
) -> Generator[AnswerEvent, None, FinalReply | EndedProgram | None]:
    """Resume the cell whose result ends ``messages``.

    Returns `FinalReply` if the cell calls again or still lacks results, the cell as an `EndedProgram` if it
    ended, and None if no cell is waiting.
    """
    last = last_result(messages)
    answers = (one.tool_calls or () for one in reversed(messages) if one.role == "assistant")
    key = last.tool_call_id or next((call.id for call in next(answers, ())), "")
    waiting = session.interpreter.waiting_cell(key) if key else None
    if waiting is None:
        return None
    places = call_positions(messages, waiting.calls)
    basis = model_view_of(messages[places[-1]]).basis if places else None
    if change := what_changed(messages, waiting.calls, basis, client, toolset):
        _drop(waiting, *change)
        return None
    if waiting.container_id != session.container.id:
        _drop(waiting, "container", "the request is for another container")
        return None
    cell = PREFIX + waiting.key
    results = results_of(messages, waiting.calls)
    failures = failures_of(messages, waiting.calls)
    refused = {
        key: FINAL[failure].format(f"{waiting.calls[key].name}()")
        for key, failure in failures.items()
        if failure in FINAL
    }
    missing = [key for key in waiting.calls if key not in results]
    if missing:
        if refused or unanswered_rounds(messages, waiting.calls.keys()) >= MAX_UNANSWERED_ROUNDS:
            _drop(waiting, "unanswered", "the client does not answer all calls")
            return None
        yield session.accepted()
        for key in missing:
            call = waiting.calls[key]
            yield ToolCall(key, call.name, call.arguments, call.kind, cell)
        return FinalReply()
    yield session.accepted()
    # A new item: the Agents SDK drops an item whose id appeared in an earlier response.
    item = f"{cell}_{len(waiting.ids)}"
    yield CodeStarted(item, session.container.id, resumes=cell)
    yield CodeDelta(waiting.code)
    yield CodeComplete(waiting.code)
    values = {
        key: failed_result(text) if failures[key] else parse_result(text)
        for key, text in results.items()
    }
    run = session.interpreter.resume(session.container, values, toolset, refused)
    verdict = yield from run_events(run, cell)
    if isinstance(verdict, CellResult):
        code = waiting.code.rstrip("\n")
        if verdict.failed:
            return EndedProgram(code, waiting.ids, failure=verdict.output)
        return EndedProgram(code, waiting.ids, output=verdict.output or NO_OUTPUT)
    return FinalReply()


def _drop(cell: WaitingCell, reason: str, why: str) -> None:
    report_dropped(reason, LookupError(why))
    if (trace := traces.current.get()) is not None:
        calls = (RecordedCall(key, one.name, one.arguments) for key, one in cell.calls.items())
        trace.resumed = ResumedProgram(cell.code, tuple(calls), outcome="dropped")
