"""One request as its page shows it: the steps from the tools that came in to the bytes that left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.json_codec import NotJSON, loads
from emulator.traces import RecordedBlock, Trace, Turn, timeline
from emulator.traces.trace import WireLog
from emulator.web.inspector.program_view import Program, written
from emulator.web.inspector.prompt_view import Line, Prompt, diff, prompt

MOST_EVENTS = 500


@dataclass(frozen=True)
class TurnView:
    """One turn of the model."""

    number: int
    turn: Turn
    prompt: Prompt
    reasoning: str
    reply: str
    program: Program | None


@dataclass(frozen=True)
class Repair:
    """A reply that was of no use, what was wrong with it, and what the model then wrote instead."""

    number: int
    kind: str
    diagnostics: str
    changes: tuple[Line, ...]
    reply: str


@dataclass(frozen=True)
class Bar:
    """A span of the waterfall; lengths are per mille of the whole."""

    name: str
    left: float
    width: float
    seconds: float
    at: float


@dataclass(frozen=True)
class Stream:
    """Raw events of one direction."""

    title: str
    events: tuple[tuple[float, str], ...]
    more: int
    left_out: int


def turns(trace: Trace, before: Turn | None, named: str) -> Iterator[TurnView]:
    """``before`` is the turn that the first one goes on with, and ``named`` the id of its request."""
    for number, turn in enumerate([*trace.turns], 1):
        program = written(turn, f"Turn {number}", trace) if turn.program or turn.cell else None
        yield TurnView(
            number,
            turn,
            prompt(turn, before, named),
            "".join(turn.reasoning),
            reply_of(turn),
            program,
        )
        before, named = turn, "turn"


def reply_of(turn: Turn) -> str:
    """What the model wrote; where nothing was emulated, as its chunks tell."""
    if turn.reply:
        return "".join([*turn.reply])
    return "".join(_contents(turn.wire))


def repairs(trace: Trace) -> Iterator[Repair]:
    made = [*trace.turns]
    for place, turn in enumerate(made):
        if turn.is_unusable:
            reply = reply_of(turn)
            after = reply_of(made[place + 1]) if place + 1 < len(made) else ""
            changes = tuple(diff(reply, after)) if after else ()
            yield Repair(place + 1, turn.verdict, turn.diagnostics, changes, reply)


def waterfall(trace: Trace) -> list[Bar]:
    spans = timeline(trace)
    whole = max(spans[0].ended, 1e-6)
    return [
        Bar(
            span.name,
            round(1000 * span.began / whole, 1),
            round(max(1000 * (span.ended - span.began) / whole, 2.0), 1),
            span.ended - span.began,
            span.began,
        )
        for span in spans
    ]


def streams(trace: Trace) -> Iterator[Stream]:
    for number, turn in enumerate([*trace.turns], 1):
        yield _stream(f"In: from the upstream, turn {number}", turn.wire)
    yield _stream("Out: to the client", trace.wire)


def dialects(blocks: Sequence[RecordedBlock]) -> str:
    return ", ".join(dict.fromkeys(block.dialect for block in blocks))


def _stream(title: str, wire: WireLog) -> Stream:
    events = [*wire.events]
    shown = tuple((at, data.decode(errors="replace")) for at, data in events[:MOST_EVENTS])
    return Stream(title, shown, max(0, len(events) - MOST_EVENTS), wire.omitted_bytes)


def _contents(wire: WireLog) -> Iterator[str]:
    for _, data in [*wire.events]:
        try:
            chunk = loads(data)
        except NotJSON:
            continue
        for choice in (chunk.get("choices") or ()) if isinstance(chunk, dict) else ():
            content = (
                (choice.get("delta") or {}).get("content") if isinstance(choice, dict) else None
            )
            if isinstance(content, str):
                yield content
