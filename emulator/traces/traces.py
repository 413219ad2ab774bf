"""Requests as they begin and end: who is told of them, and the last ones, where this process keeps them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import structlog

from emulator.traces.listing import MOST_OF_CONTAINER, Listing, listing
from emulator.traces.neighbours import Neighbours, neighbours
from emulator.traces.ring import EACH, PART, Entry, Ring
from emulator.traces.row import Row, checksums
from emulator.traces.sizes import size_of, strip
from emulator.traces.trace import Trace

log = structlog.get_logger()

Listener = Callable[[Trace], None]


class Kept(Protocol):
    """The last requests, for looking at them. ``client`` is whose they are; None for all."""

    def listing(self, asked: Mapping[str, str], client: str | None) -> Listing: ...

    def get(self, key: str, client: str | None = None) -> Trace | None: ...

    def neighbours(self, trace: Trace) -> Neighbours: ...

    def ran_in(self, container: str, client: str | None) -> list[Trace]:
        """The requests that have run cells there, the newest first."""
        ...

    def clear(self, client: str | None = None) -> int:
        """Forget them. Returns how many there were."""
        ...

    def wait(self, version: int, seconds: float) -> int:
        """The version, once it is another than ``version`` or time is up."""
        ...

    @property
    def kept(self) -> tuple[int, int]:
        """How many requests, and about how many bytes."""
        ...


class Traces:
    """See `Kept`. Safe to share between threads."""

    def __init__(
        self,
        keep: int,
        keep_bytes: int,
        keep_seconds: float,
        now: Callable[[], float] = time.time,
        *,
        wired: bool = False,
    ) -> None:
        """``keep`` requests at most; with 0 there are traces only while they run, and for listeners.

        ``wired``: raw bytes are recorded even so.
        """
        self._keep = keep
        self._most = keep_bytes // PART
        self._wired = wired or bool(keep)
        self._now = now
        self._ring: Ring[Trace, Trace] = Ring(keep, keep_bytes, keep_seconds, now)
        self._rows: WeakKeyDictionary[Trace, Row] = WeakKeyDictionary()
        """Of those that have ended and were listed: most are never looked at."""
        self._begun: list[Listener] = []
        self._finished: list[Listener] = []

    def on_begun(self, listener: Listener) -> None:
        """Call ``listener`` once for each request from now on, before anything is done for it."""
        self._begun.append(listener)

    def on_finished(self, listener: Listener) -> None:
        """Call ``listener`` once for each request from now on, when its response has left."""
        self._finished.append(listener)

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
        """A new request; None where nobody wants to know of it."""
        if not (self._keep or self._finished):
            return None
        trace = Trace(key, method, path, client, body, self._now(), route, client_name)
        trace.wired = self._wired
        for listener in self._begun:
            _tell(listener, trace)
        if self._keep:
            self._ring.put(Entry(trace, trace))
        return trace

    def finish(self, trace: Trace, *, left: bool = False) -> None:
        """The request is over. Safe to call twice."""
        if not trace.end(left=left):
            return
        for listener in self._finished:
            _tell(listener, trace)
        if not self._keep:
            return
        size = EACH + size_of(trace)
        if size > self._most:
            strip(trace)
            self._rows.pop(trace, None)  # of one who looked meanwhile
            size = EACH
        self._ring.put(Entry(trace, trace, size), known=True)

    def all(self, client: str | None = None) -> list[Trace]:
        """The newest first; of one client, or of all with None."""
        return [entry.whole for entry in self._ring.all(client)]

    def listing(self, asked: Mapping[str, str], client: str | None) -> Listing:
        return listing(self._listed(client), asked)

    def get(self, key: str, client: str | None = None) -> Trace | None:
        entry = self._ring.get(key, client)
        return None if entry is None else entry.whole

    def neighbours(self, trace: Trace) -> Neighbours:
        first = checksums(trace.turns[0].messages) if trace.turns else ()
        return neighbours(self._row(trace), first, self._listed(trace.client))

    def ran_in(self, container: str, client: str | None) -> list[Trace]:
        return [one for one in self.all(client) if one.container == container][:MOST_OF_CONTAINER]

    def clear(self, client: str | None = None) -> int:
        return self._ring.clear(client)

    def wait(self, version: int, seconds: float) -> int:
        return self._ring.wait(version, seconds)

    @property
    def version(self) -> int:
        return self._ring.version

    @property
    def kept(self) -> tuple[int, int]:
        return self._ring.kept

    def _listed(self, client: str | None) -> list[Row]:
        return [self._row(entry.whole) for entry in self._ring.all(client)]

    def _row(self, trace: Trace) -> Row:
        if trace.seconds is None:
            return Row.of(trace)  # what has not ended changes
        row = self._rows.get(trace)
        if row is None:
            row = self._rows[trace] = Row.of(trace)
        return row


def _tell(listener: Listener, trace: Trace) -> None:
    try:
        listener(trace)
    except Exception:
        log.exception("a listener failed", request=trace.id)
