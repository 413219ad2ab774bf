"""The most recent requests, limited in number, bytes and age. The oldest are removed first.

The store of one worker is in the worker itself, that of several in the keeper. It reads a request's summary
only; the rest is opaque text to it. A running request that its worker has not reported for `_LOST_SECONDS` is
shown as failed: its worker has died.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emulator.settings import Settings
from emulator.shared.rpc import Handler
from emulator.traces.listing import select_page
from emulator.traces.related import find_related
from emulator.traces.summary import TraceSummary

MAX_PART = 8
"""A request that takes more than this part of all bytes is reduced to its summary."""
_BASE_BYTES = 2048
"""About the size of a request without its contents."""
_LOST_SECONDS = 30.0
_LOST = "The worker process that served this request has ended."


@dataclass(frozen=True)
class _StoredTrace:
    summary: TraceSummary
    text: str | None
    """As written by `dump_trace`; None if only the summary is known."""
    reported: float

    @property
    def size(self) -> int:
        words = sum(map(len, self.summary.words))
        return _BASE_BYTES + len(self.summary.body) + len(self.text or "") + words


class TraceStore:
    """With None as ``client``, requests of all clients are meant. Safe to share between threads."""

    def __init__(
        self,
        max_traces: int,
        max_bytes: int,
        max_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._max_traces = max_traces
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._now = now
        self._traces: OrderedDict[str, _StoredTrace] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Handler]:
        """What answers the calls of `TraceSender` and `TraceReader`. Results are JSON values."""
        return {
            "traces.put": self._put_batch,
            "traces.page": self._page,
            "traces.get": self._get,
            "traces.related": self._related,
            "traces.running_clients": self._running_clients,
            "traces.clear": self._clear,
            "traces.count_and_bytes": self._count_and_bytes,
        }

    def _put_batch(self, batch: Sequence[Sequence[Any]]) -> None:
        """Of each trace: the summary, and the text or None."""
        for fields, text in batch:
            self._put(TraceSummary.from_json(fields), text)

    def _put(self, summary: TraceSummary, text: str | None) -> None:
        """Add a request or replace it. ``text`` is None in a report that it still runs: its contents stay."""
        with self._lock:
            old = self._traces.get(summary.id)
            if old is not None and old.summary.seconds is not None and summary.seconds is None:
                return  # an earlier report of a request that has ended
            if old is not None and text is None and summary.seconds is None:
                summary, text = replace(summary, body=old.summary.body), old.text
            stored = _StoredTrace(summary, text, self._now())
            if stored.size > self._max_bytes // MAX_PART:
                stored = _StoredTrace(
                    replace(summary, body=b"", tools=(), called=()), None, stored.reported
                )
            self._traces[summary.id] = stored
            self._bytes += stored.size - (old.size if old is not None else 0)
            self._shrink()

    def _page(self, parameters: Mapping[str, str], client: str | None) -> dict[str, Any]:
        found = select_page(self._summaries_of(client), parameters, self._now())
        return {
            **asdict(replace(found, rows=())),
            "rows": [replace(row, body=b"").to_json() for row in found.rows],
        }

    def _get(self, key: str, client: str | None) -> Any:
        with self._lock:
            self._shrink()
            stored = self._traces.get(key)
        if stored is None or client not in (None, stored.summary.client):
            return None
        return self._parts(stored)

    def _related(self, summary: Mapping[str, Any], first_prompt: Sequence[int]) -> dict[str, Any]:
        own = TraceSummary.from_json(summary)
        return asdict(find_related(own, first_prompt, self._summaries_of(own.client)))

    def _running_clients(self) -> dict[str, str]:
        rows = [row for row in self._summaries_of(None) if row.state == "running"]
        return {row.client: row.client_label for row in rows}

    def _clear(self, client: str | None) -> int:
        with self._lock:
            found = [
                key for key, one in self._traces.items() if client in (None, one.summary.client)
            ]
            for key in found:
                self._remove(key)
        return len(found)

    def _count_and_bytes(self, client: str | None) -> tuple[int, int]:
        if client is None:
            return len(self._traces), self._bytes
        own = self._all(client)
        return len(own), sum(one.size for one in own)

    def _parts(self, stored: _StoredTrace) -> Any:
        """The arguments of `emulator.traces.reader.read_trace`."""
        return self._shown(stored).to_json(), stored.text

    def _shown(self, stored: _StoredTrace) -> TraceSummary:
        summary = stored.summary
        is_lost = summary.seconds is None and self._now() - stored.reported > _LOST_SECONDS
        return replace(summary, state="failed", error=_LOST) if is_lost else summary

    def _summaries_of(self, client: str | None) -> list[TraceSummary]:
        return [self._shown(stored) for stored in self._all(client)]

    def _all(self, client: str | None) -> list[_StoredTrace]:
        """The newest first."""
        with self._lock:
            self._shrink()
            stored = [*reversed(self._traces.values())]
        stored = [one for one in stored if client in (None, one.summary.client)]
        return sorted(stored, key=lambda one: one.summary.began, reverse=True)

    def _shrink(self) -> None:
        oldest = self._now() - self._max_seconds
        while self._traces:
            key, first = next(iter(self._traces.items()))
            fits = len(self._traces) <= self._max_traces and self._bytes <= self._max_bytes
            if fits and first.summary.began >= oldest:
                return
            self._remove(key)

    def _remove(self, key: str) -> None:
        self._bytes -= self._traces.pop(key).size


def open_traces(settings: Settings) -> TraceStore:
    return TraceStore(
        settings.inspector_traces, settings.inspector_bytes, settings.inspector_seconds
    )
