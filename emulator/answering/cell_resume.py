"""Cells over turns: a cell that waits in its kernel goes on when the results of its calls are there.

Other than a program (`resume.py`), a cell is never run again from its top: it may have changed variables
and files. If it waits no more (a restart, a container that has expired), that means an ordinary turn over
the same history, never an error. Results count wherever they stand in the history: the calls that have none
are asked for again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from emulator.answering.cell_draft import PREFIX, run_events
from emulator.answering.interpreter_session import InterpreterSession
from emulator.answering.verdicts import CellResult, FinalReply
from emulator.events import (
    AnswerEvent,
    CodeComplete,
    CodeDelta,
    CodeStarted,
    ToolCall,
    UpstreamAccepted,
    new_id,
)
from emulator.programs.call_history import (
    MAX_UNANSWERED_ROUNDS,
    results_of,
    shows_calls,
    unanswered_rounds,
)
from emulator.programs.ended import EndedProgram
from emulator.programs.saved import parse_result
from emulator.protocol import Message


def resume_cell(
    session: InterpreterSession, messages: Sequence[Message]
) -> Generator[AnswerEvent, None, FinalReply | EndedProgram | None]:
    """Run on the cell whose result ends ``messages``.

    Returns `FinalReply` if it has called again or still lacks results, how it ended, or None when there is
    none to run on.
    """
    last = messages[-1]
    waiting = (
        session.interpreter.waiting_cell(last.tool_call_id or "") if last.role == "tool" else None
    )
    if waiting is None or waiting.container_id != session.container.id:
        return None
    if not shows_calls(messages, waiting.calls):
        return None
    results = results_of(messages, waiting.calls)
    missing = [key for key in waiting.calls if key not in results]
    if missing:
        if unanswered_rounds(messages, waiting.calls.keys()) >= MAX_UNANSWERED_ROUNDS:
            return None
        yield UpstreamAccepted(container_id=session.container.id)
        for key in missing:
            call = waiting.calls[key]
            yield ToolCall(key, call.name, call.arguments, call.kind)
        return FinalReply()
    yield UpstreamAccepted(container_id=session.container.id)
    # An item of its own: the Agents SDK drops an item whose id it has seen in an earlier response.
    yield CodeStarted(new_id(PREFIX), session.container.id)
    yield CodeDelta(waiting.code)
    yield CodeComplete(waiting.code)
    values = {key: parse_result(text) for key, text in results.items()}
    verdict = yield from run_events(session.interpreter.resume(session.container, values))
    if isinstance(verdict, CellResult):
        code = waiting.code.rstrip("\n")
        if verdict.failed:
            return EndedProgram(code, waiting.ids, failure=verdict.output)
        return EndedProgram(code, waiting.ids, output=verdict.output or "(nothing was printed)")
    return FinalReply()
