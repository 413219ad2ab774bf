"""One request as its page shows it: the steps from the incoming tools to the outgoing bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emulator.core.json_codec import NotJSON, loads
from emulator.traces import Span, Trace, Turn, timeline
from emulator.traces.trace import WireLog
from emulator.web.inspector.program_view import ProgramView, program_view
from emulator.web.inspector.prompt_view import TURN, DiffLine, PromptView, diff, prompt_view

MAX_EVENTS = 500


@dataclass(frozen=True)
class TurnView:
    """One turn of the model."""

    number: int
    turn: Turn
    prompt: PromptView
    reasoning: str
    reply: str
    program: ProgramView | None


@dataclass(frozen=True)
class RepairView:
    """An unusable reply, its diagnostics, and the changes in the next reply."""

    number: int
    kind: str
    diagnostics: str
    changes: tuple[DiffLine, ...]
    reply: str


@dataclass(frozen=True)
class TimelineBar:
    """A span of the timeline; ``left`` and ``width`` are per mille of the whole."""

    name: str
    left: float
    width: float
    seconds: float
    at: float


@dataclass(frozen=True)
class StreamView:
    """The raw events of one direction."""

    title: str
    events: tuple[tuple[float, str], ...]
    more: int
    omitted_bytes: int


def turns(trace: Trace, before: Turn | None, label: str) -> Iterator[TurnView]:
    """``before`` is the turn whose prompt the first one continues, ``label`` the id of its request."""
    for number, turn in enumerate([*trace.turns], 1):
        program = program_view(turn, f"Turn {number}", trace) if turn.program or turn.cell else None
        yield TurnView(
            number,
            turn,
            prompt_view(turn, before, label),
            "".join(turn.reasoning),
            reply_of(turn),
            program,
        )
        before, label = turn, TURN


def reply_of(turn: Turn) -> str:
    """The text that the model wrote. Without emulation it is read from the recorded chunks."""
    if turn.reply:
        return "".join([*turn.reply])
    return "".join(_contents(turn.wire))


def repairs(trace: Trace) -> Iterator[RepairView]:
    turns = [*trace.turns]
    for place, turn in enumerate(turns):
        if turn.is_unusable:
            reply = reply_of(turn)
            after = reply_of(turns[place + 1]) if place + 1 < len(turns) else ""
            changes = tuple(diff(reply, after)) if after else ()
            yield RepairView(place + 1, turn.verdict, turn.diagnostics, changes, reply)


def waterfall(trace: Trace) -> list[TimelineBar]:
    spans = timeline(trace)
    if trace.turns:
        spans.insert(1, Span("before the model", 0.0, trace.turns[0].began))
    whole = max(spans[0].ended, 1e-6)
    return [
        TimelineBar(
            span.name,
            round(1000 * span.began / whole, 1),
            round(max(1000 * (span.ended - span.began) / whole, 2.0), 1),
            span.ended - span.began,
            span.began,
        )
        for span in spans
    ]


def streams(trace: Trace) -> Iterator[StreamView]:
    for number, turn in enumerate([*trace.turns], 1):
        yield _stream(f"In: from the upstream, turn {number}", turn.wire)
    yield _stream("Out: to the client", trace.wire)


def _stream(title: str, wire: WireLog) -> StreamView:
    events = [*wire.events]
    shown = tuple((at, data.decode(errors="replace")) for at, data in events[:MAX_EVENTS])
    return StreamView(title, shown, max(0, len(events) - MAX_EVENTS), wire.omitted_bytes)


def _contents(wire: WireLog) -> Iterator[str]:
    for data in b"\n\n".join([data for _, data in wire.events]).split(b"\n\n"):
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
