"""The steps of a request as spans: for a waterfall chart, or for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emulator.traces.trace import Trace, Turn


@dataclass(frozen=True)
class Span:
    """``began`` and ``ended`` are seconds since the trace began; they are equal for a moment."""

    name: str
    began: float
    ended: float
    turn: Turn | None = None
    """The turn that the span is part of; None for a span of the whole request."""


def timeline(trace: Trace) -> list[Span]:
    """``request``, followed by the others in order of their begin.

    These are ``upstream`` (a whole turn), ``upstream accepts``, ``first token``, ``sandbox`` and
    ``first call``. A step that is still running ends now.
    """
    now = trace.seconds if trace.seconds is not None else trace.now()
    spans = [span for turn in trace.turns for span in _turn_spans(turn, now)]
    spans += [Span(name, began, ended) for name, began, ended in [*trace.times]]
    if trace.first_call is not None:
        spans.append(Span("first call", trace.first_call, trace.first_call))
    return [Span("request", 0.0, now), *sorted(spans, key=lambda span: span.began)]


def _turn_spans(turn: Turn, now: float) -> Iterator[Span]:
    yield Span("upstream", turn.began, now if turn.ended is None else turn.ended, turn)
    if turn.opened is not None:
        yield Span("upstream accepts", turn.began, turn.opened, turn)
        if turn.first_output is not None:
            yield Span("first token", turn.opened, turn.first_output, turn)
