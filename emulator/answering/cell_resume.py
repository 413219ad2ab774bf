"""Cells over turns: a cell that waits in its kernel goes on when the result of its call arrives.

Other than a program (`resume.py`), a cell is never run again from its top: it may have changed variables
and files. If it waits no more (a restart, a container that has expired), that means an ordinary turn over
the same history, never an error.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from emulator.answering.bench import Bench
from emulator.answering.cell_draft import PREFIX, run_events
from emulator.answering.verdicts import Answered, Ran
from emulator.events import AnswerEvent, CodeBegun, CodeClosed, CodeDelta, Opened, new_id
from emulator.programs.resume import beginning, last_calls, object_of, value_of
from emulator.protocol import Message


@dataclass(frozen=True)
class EndedCell:
    """See `passages.Cell`."""

    source: str
    start: int
    output: str
    diagnostics: str = ""


def go_on(
    bench: Bench, messages: Sequence[Message]
) -> Generator[AnswerEvent, None, Answered | EndedCell | None]:
    """Run on the cell whose result ends ``messages``.

    Returns `Answered` if it has called again, how it ended, or None when there is none to run on.
    """
    at = last_calls(messages)
    if at is None:
        return None
    results = {message.tool_call_id: message.text for message in messages[at + 1 :]}
    for made in messages[at].tool_calls or ():
        waiting = bench.interpreter.waiting(made.id)
        if waiting is None or waiting.container_id != bench.container.id or made.id not in results:
            continue
        function, call = made.called, waiting.call
        if function is None or function.name != call.name:
            continue
        if object_of(function.arguments) != call.arguments:
            continue
        yield Opened(lambda: None, container_id=bench.container.id)
        # An item of its own: the Agents SDK drops an item whose id it has seen in an earlier response.
        yield CodeBegun(new_id(PREFIX), bench.container.id)
        yield CodeDelta(waiting.code)
        yield CodeClosed(waiting.code)
        run = bench.interpreter.go_on(bench.container, made.id, value_of(results[made.id]))
        verdict = yield from run_events(run)
        if isinstance(verdict, Ran):
            start = beginning(messages, waiting.ids)
            if verdict.failed:
                return EndedCell(waiting.code, start, "", diagnostics=verdict.output)
            return EndedCell(waiting.code, start, verdict.output or "(nothing was printed)")
        return Answered()
    return None
