"""Read the most recent requests of all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from emulator.database import database_failures
from emulator.traces.listing import TracePage
from emulator.traces.related import RelatedRequests
from emulator.traces.store import StoredTrace, TraceStore
from emulator.traces.summary import TraceSummary, checksums
from emulator.traces.trace import Trace
from emulator.traces.transfer import load_trace


class TraceReader:
    """The requests of ``client``, or of all clients with None.

    Every method raises `StoreUnavailable` if they cannot be read.
    """

    def __init__(self, store: TraceStore, flush: Callable[[str], None] = lambda _: None) -> None:
        """``flush`` stores what this worker has not stored yet, with the whole of one request: a client
        that has its answer finds its request.
        """
        self._store = store
        self._flush = flush

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        """For ``parameters`` see `select_page`."""
        with self._flushed():
            return self._store.page(parameters, client)

    def get(self, key: str, client: str | None = None) -> Trace | None:
        with self._flushed(key):
            stored = self._store.get(key, client)
        return None if stored is None else read_trace(stored)

    def related(self, trace: Trace) -> RelatedRequests:
        first_prompt = checksums(trace.turns[0].messages) if trace.turns else ()
        own = replace(TraceSummary.of(trace), body=b"")
        with self._flushed():
            return self._store.related(own, first_prompt)

    def running_clients(self) -> dict[str, str]:
        """The clients that wait for an answer, with their names."""
        with self._flushed():
            return self._store.running_clients()

    def clear(self, client: str | None = None) -> int:
        """Remove them. Returns their number."""
        with self._flushed():
            return self._store.clear(client)

    def count_and_bytes(self, client: str | None) -> tuple[int, int]:
        """The number of requests, and about their size."""
        with self._flushed():
            return self._store.count_and_bytes(client)

    @contextmanager
    def _flushed(self, whole: str = "") -> Iterator[None]:
        self._flush(whole)
        with database_failures("The recorded requests cannot be read"):
            yield


def read_trace(stored: StoredTrace) -> Trace:
    summary = stored.summary
    if stored.text is None:  # too large, or not yet reported whole
        return Trace(
            summary.id, "", summary.path, summary.client, began=summary.began, model=summary.model,
            state=summary.state, seconds=summary.seconds, error=summary.error, stripped=True,
        )  # fmt: skip
    trace = load_trace(stored.text, summary.body)
    trace.state, trace.error = summary.state, trace.error or summary.error
    return trace
