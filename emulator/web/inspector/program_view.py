"""A program with a gutter: which line sent a call, where it waits, what was known when it was run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from emulator.json_codec import dumps
from emulator.traces import Trace, Turn

Mark = Literal["sent", "waiting", "resumed"]
"""``sent``: its call has left in this request; ``resumed``: an earlier one, whose result is known by now;
``waiting``: an earlier one whose result is not."""


@dataclass(frozen=True)
class MadeCall:
    id: str
    name: str
    arguments: str
    mark: Mark
    line: int | None
    result: str | None = None


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Program:
    """One program as this request has run it."""

    title: str
    lines: tuple[Line, ...]
    calls: tuple[MadeCall, ...]
    outcome: str = ""
    output: str = ""


def programs(trace: Trace) -> list[Program]:
    """What was gone on with, and then what was written in this request's turns."""
    found = [] if trace.resumed is None else [_resumed(trace)]
    return found + [
        written(turn, f"Turn {number}", trace)
        for number, turn in enumerate(trace.turns, 1)
        if turn.program or turn.cell
    ]


def written(turn: Turn, title: str, trace: Trace) -> Program:
    sent = [
        MadeCall(call.id, call.name, _json(call.arguments), "sent", turn.lines[call.id])
        for call in trace.calls
        if call.id in turn.lines
    ]
    source = turn.program or turn.cell
    outcome = {"invalid": "rejected", "ran": "cell"}.get(turn.verdict, "")
    return Program(title, lines(source, sent), tuple(sent), outcome)


def lines(source: str, calls: Sequence[MadeCall]) -> tuple[Line, ...]:
    at: dict[int, list[Mark]] = {}
    for call in calls:
        if call.line is not None:
            at.setdefault(call.line, []).append(call.mark)
    return tuple(
        Line(number, text, tuple(dict.fromkeys(at.get(number, ()))))
        for number, text in enumerate(source.splitlines(), 1)
    )


def _resumed(trace: Trace) -> Program:
    program = trace.resumed
    assert program is not None
    at = dict(enumerate(program.lines))
    calls = [
        MadeCall(
            call.id,
            call.name,
            _json(call.arguments),
            "resumed" if call.known else "waiting",
            at.get(place),
            _json(call.result) if call.known else None,
        )
        for place, call in enumerate(program.calls)
    ]
    if program.outcome == "waits":
        known = {call.id for call in calls}
        fresh = [call for call in trace.calls if call.id not in known]
        calls += [
            MadeCall(call.id, call.name, _json(call.arguments), "sent", at.get(len(calls) + place))
            for place, call in enumerate(fresh)
        ]
    title = "Gone on with, without the model" if trace.turns_saved else "Gone on with"
    outcome = {"waits": "waits for results"}.get(program.outcome, program.outcome)
    return Program(title, lines(program.source, calls), tuple(calls), outcome, program.output)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    return dumps(dict(value) if isinstance(value, Mapping) else value).decode()
