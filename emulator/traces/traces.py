"""Begin and finish traces, call the listeners, and store the most recent traces of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import structlog

from emulator.traces.listing import TracePage
from emulator.traces.related import RelatedRequests
from emulator.traces.ring import BASE_BYTES, MAX_PART, Entry, Ring
from emulator.traces.sizes import size_of, strip
from emulator.traces.summary import TraceSummary, checksums
from emulator.traces.trace import Trace

log = structlog.get_logger()

Listener = Callable[[Trace], None]


class TraceReader(Protocol):
    """Reads the most recent requests: those of ``client``, or of all clients with None."""

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        """For ``parameters`` see `select_page`."""
        ...

    def get(self, key: str, client: str | None = None) -> Trace | None: ...

    def related(self, trace: Trace) -> RelatedRequests: ...

    def in_container(self, container: str, client: str | None) -> list[Trace]:
        """The requests that ran cells in a container, the newest first."""
        ...

    def clear(self, client: str | None = None) -> int:
        """Remove them. Returns their number."""
        ...

    def wait(self, version: int, seconds: float) -> int:
        """Wait until the version differs from ``version``, at most ``seconds``. Returns the version."""
        ...

    @property
    def count_and_bytes(self) -> tuple[int, int]:
        """The number of requests, and about their size."""
        ...


class Traces(Ring[Trace]):
    """See `TraceReader`. Safe to share between threads."""

    def __init__(
        self,
        max_traces: int,
        max_bytes: int,
        max_seconds: float,
        now: Callable[[], float] = time.time,
        *,
        records_wire: bool = False,
    ) -> None:
        """With 0 ``max_traces`` none are stored: traces exist while they run, for the listeners.

        Raw bytes are recorded if traces are stored or ``records_wire`` is True.
        """
        super().__init__(max_traces, max_bytes, max_seconds, now)
        self._is_storing = max_traces > 0
        self._max_trace_bytes = max_bytes // MAX_PART
        self._records_wire = records_wire or self._is_storing
        self._summaries: WeakKeyDictionary[Trace, TraceSummary] = WeakKeyDictionary()
        """Of finished traces that were listed. Most are never looked at."""
        self._on_begin: list[Listener] = []
        self._on_finish: list[Listener] = []

    def on_begin(self, listener: Listener) -> None:
        """Call ``listener`` for each future request, before any work is done for it."""
        self._on_begin.append(listener)

    def on_finish(self, listener: Listener) -> None:
        """Call ``listener`` for each future request, once its response has been sent."""
        self._on_finish.append(listener)

    def begin(
        self,
        key: str,
        method: str,
        path: str,
        client: str,
        body: bytes,
        route: str = "",
        client_name: str = "",
    ) -> Trace | None:
        """Return a new request's trace, or None if nobody reads it."""
        if not (self._is_storing or self._on_finish):
            return None
        trace = Trace(key, method, path, client, body, self._now(), route, client_name)
        trace.records_wire = self._records_wire
        for listener in self._on_begin:
            _call(listener, trace)
        if self._is_storing:
            self.put(_entry(trace))
        return trace

    def finish(self, trace: Trace, *, disconnected: bool = False) -> None:
        """End a request's trace; ``disconnected`` if its client left early. A second call has no effect."""
        if not trace.end(disconnected=disconnected):
            return
        for listener in self._on_finish:
            _call(listener, trace)
        if not self._is_storing:
            return
        size = BASE_BYTES + size_of(trace)
        if size > self._max_trace_bytes:
            strip(trace)
            self._summaries.pop(trace, None)  # made by a reader in the meantime
            size = BASE_BYTES
        self.put(_entry(trace, size), only_replace=True)

    def related(self, trace: Trace) -> RelatedRequests:
        first_prompt = checksums(trace.turns[0].messages) if trace.turns else ()
        return self.related_to(self.summary(trace), first_prompt)

    def summary(self, value: Trace) -> TraceSummary:
        if value.seconds is None:
            return TraceSummary.of(value)  # it still changes
        summary = self._summaries.get(value)
        if summary is None:
            summary = self._summaries[value] = TraceSummary.of(value)
        return summary


def _entry(trace: Trace, size: int = 0) -> Entry[Trace]:
    return Entry(trace.id, trace.client, trace.began, trace.seconds is not None, trace, size)


def _call(listener: Listener, trace: Trace) -> None:
    try:
        listener(trace)
    except Exception:
        log.exception("a listener failed", request=trace.id)
