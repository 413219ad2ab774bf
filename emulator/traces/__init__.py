"""What happens in each request, as it happens: one `Trace` per request, stored in memory within limits.

The rooms above write to `current`, the trace of the current request; it is None if nothing is recorded. They
pass objects that they hold anyway (the list of a reply's pieces, the messages that are sent), so recording
copies nothing and costs a few attributes per turn. Nothing is written to disk, no header and no key is
recorded, and clients are named by a digest.

    Traces.begin -> Trace (running) -> Traces.finish -> listeners, then the `Ring`

    traces = Traces(max_traces=1000, max_bytes=64 * 2**20, max_seconds=86_400)
    traces.on_finish(write_log_line)   # once for each request, in the thread that finished it

A finished `Trace` shows the request (``client``, ``model``, ``upstream``, ``profile``), how it ended
(``state``, ``status``, ``error``, ``finish_reason``), what it cost (``turns``, ``repairs``, ``calls``,
``turns_saved``, ``usage``, ``seconds``), and when each step happened: `timeline` returns these as `Span`s for
OpenTelemetry. All times are seconds since ``began``, which is Unix time. With ``max_traces`` 0, traces exist
for the listeners only, without raw bytes; without listeners there are none.

With several workers, each sends its traces (`sender`, `transfer`) to the keeper process, which stores them
(`remote.TraceStore`); any worker reads them there (`remote.RemoteTraces`). Readers see a `TraceReader` either
way: pages of `TraceSummary`s (`listing`), whole traces, and `related` requests.

Start with `Trace`. Knows nothing of Flask, prompts or sandboxes.
"""

from __future__ import annotations

from emulator.traces.answer_recorder import record_answer
from emulator.traces.timeline import Span, timeline
from emulator.traces.trace import (
    RecordedBlock,
    RecordedCall,
    ResumedProgram,
    Trace,
    Turn,
    current,
    current_turn,
    event_recorder,
    propagated_headers,
    record_time,
    without_trace,
)
from emulator.traces.traces import TraceReader, Traces

__all__ = [
    "RecordedBlock",
    "RecordedCall",
    "ResumedProgram",
    "Span",
    "Trace",
    "TraceReader",
    "Traces",
    "Turn",
    "current",
    "current_turn",
    "event_recorder",
    "propagated_headers",
    "record_answer",
    "record_time",
    "timeline",
    "without_trace",
]
