"""When what happened in a request, as spans: for a waterfall, or for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emulator.traces.trace import Trace, Turn


@dataclass(frozen=True)
class Span:
    """``began`` and ``ended`` are seconds since the trace began; equal for what is a moment."""

    name: str
    began: float
    ended: float
    turn: Turn | None = None
    """Of what the span is a part of; None for the whole request."""


def timeline(trace: Trace) -> list[Span]:
    """``request`` first, then by begin: ``upstream`` (a turn, all of it), ``upstream accepts``,
    ``first token``, ``sandbox``, ``first call``.

    What has not ended yet ends now.
    """
    now = trace.seconds if trace.seconds is not None else trace.now()
    spans = [span for turn in trace.turns for span in _turn(turn, now)]
    spans += [Span(name, began, ended) for name, began, ended in [*trace.times]]
    if trace.called is not None:
        spans.append(Span("first call", trace.called, trace.called))
    return [Span("request", 0.0, now), *sorted(spans, key=lambda span: span.began)]


def _turn(turn: Turn, now: float) -> Iterator[Span]:
    yield Span("upstream", turn.began, now if turn.ended is None else turn.ended, turn)
    if turn.opened is not None:
        yield Span("upstream accepts", turn.began, turn.opened, turn)
        if turn.first is not None:
            yield Span("first token", turn.opened, turn.first, turn)
