"""A worker's traces on their way to the `TraceStore`.

    begins ──► running ──► ended ──► sent
                 │ every second: its summary; the whole trace each time that its age has doubled

A trace is sent whole when its request has ended. No request waits for that: what ends within
`_BATCH_SECONDS` is sent together, so a worker that is killed loses that much. `flush` sends immediately,
before a read. A trace that cannot be sent is lost with a warning in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from emulator.database import DatabaseFailed
from emulator.traces.store import MAX_PART, TraceStore
from emulator.traces.summary import TraceSummary
from emulator.traces.trace import Trace
from emulator.traces.transfer import dump_trace

log = structlog.get_logger()

_REPORT_SECONDS = 1.0
_BATCH_SECONDS = 0.05
_BATCH_BYTES = 4 * 2**20
"""About the size of a batch. A request that ends while more is waiting sends it, and waits for that."""

Message = tuple[TraceSummary, str | None]
"""A summary and `dump_trace`; the latter is None if only the summary is sent."""


class TraceSender:
    """`begin` and `finish` are listeners of a worker's `Traces`. Safe to share between threads."""

    def __init__(self, store: TraceStore) -> None:
        self._store = store
        self._max_bytes = store.max_bytes // MAX_PART
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._active = threading.Event()
        """Set while a request runs or has ended unsent."""
        self._running: dict[str, Trace] = {}
        self._sent_at: dict[str, float] = {}
        """How old each running request was when it was last sent whole."""
        self._ended: list[Trace] = []
        self._ended_bytes = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, trace: Trace) -> None:
        with self._lock:
            self._running[trace.id] = trace
            self._active.set()
            if self._thread is None:  # not in __init__: the server forks after the app is created
                self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
                self._thread.start()

    def finish(self, trace: Trace) -> None:
        with self._lock:
            self._running.pop(trace.id, None)
            self._ended.append(trace)
            self._ended_bytes += trace.raw_bytes
            self._active.set()
            is_due = self._closed or self._ended_bytes > _BATCH_BYTES
        if is_due:
            self._send_ended()

    def flush(self, whole: str = "") -> None:
        """Send what has ended, the summaries of what runs, and the whole request whose id is ``whole``."""
        with self._lock:
            running = [*self._running.values()]
        with self._sending:
            self._send(running, lambda trace: self._current(trace, is_whole=trace.id == whole))
        self._send_ended()  # those that have ended meanwhile, too

    def close(self) -> None:
        """From now on a request is sent as soon as it ends."""
        with self._lock:
            self._closed = True
            self._active.set()
        self._send_ended()

    def _send_ended(self) -> None:
        with self._sending:
            with self._lock:
                ended, self._ended, self._ended_bytes = self._ended, [], 0
                if not self._running:
                    self._active.clear()
            self._send(ended, self._whole)

    def _work(self) -> None:
        reported = time.monotonic()
        while self._active.wait() and not self._closed:
            time.sleep(_BATCH_SECONDS)
            self._send_ended()
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported = time.monotonic()
                self._report_running()

    def _report_running(self) -> None:
        with self._lock:  # most requests end before their first report
            running = [trace for trace in self._running.values() if trace.now() >= _REPORT_SECONDS]
        self._sent_at = {trace.id: self._sent_at.get(trace.id, 0.0) for trace in running}
        with self._sending:
            self._send(running, self._report)

    def _report(self, trace: Trace) -> Message:
        age = trace.now()
        is_whole = age >= 2 * self._sent_at[trace.id]
        if is_whole:
            self._sent_at[trace.id] = age
        return self._current(trace, is_whole=is_whole)

    def _current(self, trace: Trace, *, is_whole: bool) -> Message:
        """Of a request that runs. One that has ended meanwhile is sent whole."""
        summary = _summary(trace)
        has_ended = summary[0].seconds is not None
        return self._whole(trace) if is_whole or has_ended else summary

    def _whole(self, trace: Trace) -> Message:
        """The trace, or only its summary if it is too large or nested too deeply."""
        try:
            text = dump_trace(trace).decode()
        except (TypeError, ValueError, RecursionError):
            return _summary(trace)
        fits = len(text) + len(trace.body) <= self._max_bytes
        return (TraceSummary.of(trace), text) if fits else _summary(trace)

    def _send(self, traces: Sequence[Trace], message_of: Callable[[Trace], Message]) -> None:
        """In batches. A trace that cannot be serialized does not stop the others."""
        batch: list[Message] = []
        size = 0
        for trace in traces:
            try:
                message = message_of(trace)
            except Exception:  # its contents are whatever clients and models wrote
                log.exception("a request is not shown by the inspector", request=trace.id)
                continue
            batch.append(message)
            size += len(message[1] or "") + len(message[0].body)
            if size > _BATCH_BYTES:
                self._send_batch(batch)
                batch, size = [], 0
        if batch:
            self._send_batch(batch)

    def _send_batch(self, batch: list[Message]) -> None:
        try:
            self._store.put(batch)
        except DatabaseFailed as error:
            log.warning(
                "requests are not shown by the inspector", requests=len(batch), reason=str(error)
            )


def _summary(trace: Trace) -> Message:
    return replace(TraceSummary.of(trace), body=b""), None
