"""A program's lines, marked with the state of the calls that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.core.json_codec import dumps
from emulator.traces import Trace, Turn

Mark = Literal["sent", "waiting", "resumed"]
"""``sent``: the call was sent in this request. ``resumed``: an earlier call whose result is known.
``waiting``: an earlier call whose result is not known yet."""


@dataclass(frozen=True)
class CallView:
    id: str
    name: str
    arguments: str
    mark: Mark
    line: int | None
    result: str | None = None


@dataclass(frozen=True)
class ProgramLine:
    number: int
    text: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class ProgramView:
    """A program as this request ran it."""

    title: str
    lines: tuple[ProgramLine, ...]
    calls: tuple[CallView, ...]
    outcome: str = ""
    output: str = ""


def program_views(trace: Trace) -> list[ProgramView]:
    """The program that this request resumed, then those that its turns wrote."""
    found = [] if trace.resumed is None else [_resumed(trace)]
    return found + [
        program_view(turn, f"Turn {number}", trace)
        for number, turn in enumerate(trace.turns, 1)
        if turn.program or turn.cell
    ]


def program_view(turn: Turn, title: str, trace: Trace) -> ProgramView:
    sent = [
        CallView(call.id, call.name, _json(call.arguments), "sent", turn.lines[call.id])
        for call in trace.calls
        if call.id in turn.lines
    ]
    source = turn.program or turn.cell
    outcome = {"invalid": "rejected", "ran": "cell"}.get(turn.verdict, "")
    return ProgramView(title, lines(source, sent), tuple(sent), outcome)


def lines(source: str, calls: Sequence[CallView]) -> tuple[ProgramLine, ...]:
    marks: dict[int, list[Mark]] = {}
    for call in calls:
        if call.line is not None:
            marks.setdefault(call.line, []).append(call.mark)
    return tuple(
        ProgramLine(number, text, tuple(dict.fromkeys(marks.get(number, ()))))
        for number, text in enumerate(source.splitlines(), 1)
    )


def _resumed(trace: Trace) -> ProgramView:
    program = trace.resumed
    assert program is not None
    line_of = dict(enumerate(program.lines))
    calls = [
        CallView(
            call.id,
            call.name,
            _json(call.arguments),
            "resumed" if call.known else "waiting",
            line_of.get(place),
            _json(call.result) if call.known else None,
        )
        for place, call in enumerate(program.calls)
    ]
    if program.outcome == "waits":
        known = {call.id for call in calls}
        new = [call for call in trace.calls if call.id not in known]
        calls += [
            CallView(
                call.id, call.name, _json(call.arguments), "sent", line_of.get(len(calls) + place)
            )
            for place, call in enumerate(new)
        ]
    title = "Resumed without the model" if trace.turns_saved else "Resumed"
    outcome = {"waits": "waits for results"}.get(program.outcome, program.outcome)
    return ProgramView(title, lines(program.source, calls), tuple(calls), outcome, program.output)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    return dumps(dict(value) if isinstance(value, Mapping) else value).decode()
