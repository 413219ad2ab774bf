"""Requests of each client in the last minute, of all workers together, in memory that they share.

The minute is counted in spans of some seconds; for each of them a worker has a plane of its own (`Sketch`). A
request counts for 60 seconds and until its span is over, so no client has more than it may within any 60
seconds, and one that has had them all waits up to `SPAN_SECONDS` longer than it would have to. What a dead
worker has counted still counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from emulator.shared.counts import SLOTS, Counts
from emulator.shared.registers import Registers
from emulator.shared.sketch import Sketch

SPAN_SECONDS = 4
_SPANS = 60 // SPAN_SECONDS + 1


@dataclass(frozen=True)
class Rate:
    allowed: bool
    remaining: int
    """Requests that may follow at once."""
    seconds: float
    """Until the oldest request that is counted is not any more."""


class Rates:
    """To be made before workers are forked. Safe to share between threads."""

    def __init__(self, counts: Counts, now: Callable[[], float] = time.monotonic) -> None:
        """``counts`` knows the workers; ``now`` is a clock that all of them have."""
        self._workers = counts
        self._now = now
        self._sketch = Sketch(SLOTS * _SPANS)
        self._spans = Registers(["spans"], SLOTS * _SPANS).of("spans")
        """Which one each plane counts, numbered from 1 on; 0: none yet."""
        self._lock = threading.Lock()

    def hit(self, client: str, most: int) -> Rate:
        """Count a request, unless it is one too many."""
        cells = self._sketch.cells(client)
        with self._lock:
            now = self._now()
            span = int(now // SPAN_SECONDS) + 1
            own = self._own_plane(span)
            # First added, then looked at: of two who come at once, never both are let in wrongly.
            self._sketch.add(own, cells, 1)
            counted, oldest = 0, span
            for earlier in range(span, span - _SPANS, -1):
                planes = self._planes(earlier)
                if planes and (count := self._sketch.count(planes, cells)):
                    counted += count
                    oldest = earlier
            if counted > most:
                self._sketch.add(own, cells, -1)
        seconds = (oldest - 1 + _SPANS) * SPAN_SECONDS - now
        return Rate(counted <= most, max(0, most - counted), seconds)

    def _planes(self, span: int) -> list[int]:
        """Those in which workers have counted that span."""
        planes = range(span % _SPANS, self._workers.used_slots * _SPANS, _SPANS)
        return [plane for plane in planes if self._spans[plane] == span]

    def _own_plane(self, span: int) -> int:
        plane = self._workers.slot * _SPANS + span % _SPANS
        if self._spans[plane] != span:
            self._spans[plane] = 0  # not to be read until it is empty
            self._sketch.clear(plane)
            self._spans[plane] = span
        return plane
