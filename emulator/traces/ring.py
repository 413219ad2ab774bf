"""The last traces, oldest first out: bounded by their number, their bytes and their age."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import structlog

from emulator.traces.sizes import size_of, strip
from emulator.traces.trace import Trace

log = structlog.get_logger()

_EACH = 2048
"""Bytes that a trace takes besides what was said in it, about."""
_PART = 8
"""No trace may take more than this part of all bytes: of a larger one only the summary stays."""

Listener = Callable[[Trace], None]


class Traces:
    """Safe to share between threads."""

    def __init__(
        self,
        keep: int,
        keep_bytes: int,
        keep_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``keep`` traces at most; with 0 there are traces only while they run, and for listeners."""
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._keep_seconds = keep_seconds
        self._now = now
        self._listeners: list[Listener] = []
        self._kept: OrderedDict[str, Trace] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._changed = threading.Condition()
        self.version = 0
        """Rises with each request that begins or ends."""

    def on_finished(self, listener: Listener) -> None:
        """Call ``listener`` once for each request from now on, when its response has left."""
        self._listeners.append(listener)

    def begin(self, key: str, method: str, path: str, client: str, body: bytes) -> Trace | None:
        """A new request; None where nobody wants to know of it."""
        if not (self._keep or self._listeners):
            return None
        trace = Trace(key, method, path, client, body, self._now(), wired=bool(self._keep))
        if self._keep:
            with self._changed:
                self._kept[key] = trace
                self._shrink()
                self._tell()
        return trace

    def finish(self, trace: Trace, *, left: bool = False) -> None:
        """The request is over. Safe to call twice."""
        with self._changed:
            if trace.seconds is not None:
                return
            trace.end(left=left)
        for listener in self._listeners:
            try:
                listener(trace)
            except Exception:
                log.exception("a listener failed", request=trace.id)
        if not self._keep:
            return
        size = _EACH + size_of(trace)
        if size > self._keep_bytes // _PART:
            strip(trace)
            size = _EACH
        with self._changed:
            if trace.id in self._kept:
                self._sizes[trace.id] = size
                self._bytes += size
            self._shrink()
            self._tell()

    def all(self, client: str | None = None) -> list[Trace]:
        """The newest first; of one client, or of all with None."""
        with self._changed:
            self._shrink()
            kept = [*reversed(self._kept.values())]
        return kept if client is None else [trace for trace in kept if trace.client == client]

    def get(self, key: str, client: str | None = None) -> Trace | None:
        with self._changed:
            self._shrink()
            trace = self._kept.get(key)
        return trace if trace and client in (None, trace.client) else None

    def clear(self, client: str | None = None) -> int:
        """Forget those of ``client``, or all. Returns how many there were."""
        with self._changed:
            gone = [key for key, one in self._kept.items() if client in (None, one.client)]
            for key in gone:
                self._drop(key)
            self._tell()
        return len(gone)

    def wait(self, version: int, seconds: float) -> int:
        """The version, once it is another than ``version`` or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != version, seconds)
            return self.version

    @property
    def kept(self) -> tuple[int, int]:
        """How many traces, and about how many bytes."""
        with self._changed:
            return len(self._kept), self._bytes

    def _tell(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _shrink(self) -> None:
        oldest = self._now() - self._keep_seconds
        while self._kept:
            key, first = next(iter(self._kept.items()))
            fits = len(self._kept) <= self._keep and self._bytes <= self._keep_bytes
            if fits and first.began >= oldest:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        del self._kept[key]
        self._bytes -= self._sizes.pop(key, 0)
