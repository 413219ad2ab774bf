"""What happened in each request, as it happens: one `Trace` a request, kept in memory in a bounded ring.

The rooms above write to `current`, the trace of the request that this context serves, which is None where
nothing is recorded. They hand over what they hold anyway (the list of a reply's pieces, the messages that
are sent), so recording copies nothing and costs a few attributes a turn. Nothing is written to a disk, no
header and no key is recorded, and clients are named by a digest.

Who reads:

    traces = Traces(keep=1000, keep_bytes=64 * 2**20, keep_seconds=86_400)
    traces.on_finished(write_log_line)   # called once for each request, in the thread that ended it

A finished `Trace` tells who asked for what (``client``, ``model``, ``upstream``, ``profile``), how it came
out (``state``, ``status``, ``error``, ``finish_reason``), what it took (``turns``, ``repairs``, ``calls``,
``turns_saved``, ``usage``, ``seconds``), and when what happened: `timeline` gives it as `Span`s, ready for
OpenTelemetry. All times are seconds since ``began``, which is Unix time. With ``keep`` 0 traces are made for
the listeners alone, without the raw bytes; with no listener either, none are made at all.

Start with `Trace`. Knows nothing of Flask, prompts or sandboxes.
"""

from __future__ import annotations

from emulator.traces.timeline import Span, timeline
from emulator.traces.trace import (
    Block,
    RecordedCall,
    Resumed,
    Trace,
    Turn,
    current,
    current_turn,
    propagated,
    timed,
    unrecorded,
    wire,
)
from emulator.traces.traces import Kept, Traces
from emulator.traces.watching import watched

__all__ = [
    "Block",
    "Kept",
    "RecordedCall",
    "Resumed",
    "Span",
    "Trace",
    "Traces",
    "Turn",
    "current",
    "current_turn",
    "propagated",
    "timed",
    "timeline",
    "unrecorded",
    "watched",
    "wire",
]
