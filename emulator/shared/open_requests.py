"""Requests of each client that are open, of all workers together, in memory that they share.

Those of a dead worker are known, as each has a plane of its own (`Sketch`): the master clears it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from emulator.shared.counts import SLOTS, Counts, wait_for_place
from emulator.shared.sketch import Sketch


class OpenRequests:
    """To be made before workers are forked. Safe to share between threads."""

    def __init__(self, counts: Counts) -> None:
        """``counts`` knows the workers."""
        self._workers = counts
        self._sketch = Sketch(SLOTS)
        self._lock = threading.Lock()

    def enter(self, client: str, most: int, seconds: float) -> Callable[[], None] | None:
        """What is to be called, once, when the request has ended; None if ``seconds`` brought no place."""
        cells = self._sketch.cells(client)
        if wait_for_place(lambda: self._take(cells, most), seconds):
            return partial(self._add, cells, -1)
        return None

    def clear(self, slot: int) -> None:
        """Its worker is dead."""
        self._sketch.clear(slot)

    def _take(self, cells: list[int], most: int) -> bool:
        with self._lock:
            self._sketch.add(self._workers.slot, cells, 1)
            if self._sketch.count(range(self._workers.used_slots), cells) > most:
                self._sketch.add(self._workers.slot, cells, -1)
                return False
        return True

    def _add(self, cells: list[int], amount: int) -> None:
        with self._lock:
            self._sketch.add(self._workers.slot, cells, amount)
