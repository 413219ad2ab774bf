"""What happens in each request, as it happens: one `Trace` per request, stored in memory within limits.

The rooms above write to `current`, the trace of the current request; it is None if nothing is recorded. They
pass objects that they hold anyway (the list of a reply's pieces, the messages that are sent), so recording
copies nothing and costs a few attributes per turn. Nothing outlives the run, no header and no key is
recorded, and clients are named by a digest.

    Traces.begin -> Trace (running) -> Traces.finish -> listeners, the last of them the `Archive`

A finished `Trace` shows the request (``client``, ``model``, ``upstream``, ``profile``), how it ended
(``state``, ``status``, ``error``, ``finish_reason``), what it cost (``turns``, ``repairs``, ``calls``,
``turns_saved``, ``tokens_in``, ``tokens_out``, ``seconds``), and when each step happened: `timeline` returns
these as `Span`s for OpenTelemetry. All times are seconds since ``began``, which is Unix time.

The archive has each trace as a row of a database: in memory, or in the folder of this run if several workers
share it. The row has the bytes that were received and sent (`transfer`). The inspector reads pages of
`TraceSummary`s (`listing`), whole traces, and `related` requests.

Start with `Trace`. Knows nothing of Flask, prompts or sandboxes.
"""

from __future__ import annotations

from emulator.traces.answer_recorder import record_answer
from emulator.traces.archive import ARCHIVE_FILE, Archive
from emulator.traces.notes import Note, NoteKind
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
    note,
    propagated_headers,
    record_sent,
    record_span,
    record_time,
    waiting,
    without_trace,
)
from emulator.traces.traces import Traces

__all__ = [
    "ARCHIVE_FILE",
    "Archive",
    "Note",
    "NoteKind",
    "RecordedBlock",
    "RecordedCall",
    "ResumedProgram",
    "Span",
    "Trace",
    "Traces",
    "Turn",
    "current",
    "current_turn",
    "event_recorder",
    "note",
    "propagated_headers",
    "record_answer",
    "record_sent",
    "record_span",
    "record_time",
    "timeline",
    "waiting",
    "without_trace",
]
