"""Counts of all workers together, in shared memory: cheap enough to change several times in each request.

A count is a row with one cell for each worker; its value is the sum of the row. Each worker writes its own
cell only, so no lock is needed between processes, and the master clears the cells of a worker that has
died. A worker raises its own cell before it checks a limit: if two workers want the last slot at the same
time, both may be refused, but never are both admitted.

Names are fixed before the workers fork. Counts per client are in `state`.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Callable, Collection

from emulator.shared.state import poll

CELLS = 128
"""More workers than this do not run at the same time, including those that are ending."""


class WorkerCounts:
    """Created before the workers are forked; each then takes its own cell. A single process has cell 0."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = list(names)
        self._memory = memoryview(mmap.mmap(-1, 8 * CELLS * len(self._names))).cast("q")
        self.cell = 0
        """The cell of this process."""
        self._lock = threading.Lock()
        """Held while a thread changes a cell of this process."""

    def free_cell(self, taken: Collection[int]) -> int:
        """Return a cleared cell for the next worker. Called by the master."""
        cell = next(n for n in range(CELLS) if n not in taken)
        self.clear(cell)
        return cell

    def clear(self, cell: int) -> None:
        """Set a dead worker's counts to 0."""
        for name in range(len(self._names)):
            self._memory[name * CELLS + cell] = 0

    def row(self, name: str) -> memoryview[int]:
        first = self._names.index(name) * CELLS
        return self._memory[first : first + CELLS]

    def count(self, name: str, limit: int) -> SharedCount:
        return SharedCount(self.row(name), self.cell, limit, self._lock)

    def acquire(self, name: str, limit: int, timeout: float) -> Callable[[], None] | None:
        """Wait for one of ``limit`` slots. Returns the function that releases it, or None."""
        slots = self.count(name, limit)
        return slots.release if slots.acquire(timeout) else None

    def load(self, name: str) -> WorkerLoad:
        return WorkerLoad(self.row(name), self.cell)


class SharedCount:
    """One count and this worker's cell of it. Safe to share between threads."""

    def __init__(self, cells: memoryview[int], cell: int, limit: int, lock: threading.Lock) -> None:
        self._cells = cells
        self._cell = cell
        self._limit = limit
        self._lock = lock

    def add(self, amount: int) -> bool:
        """Add ``amount``, which may be negative. Returns False, and adds nothing, above the limit."""
        with self._lock:
            self._cells[self._cell] += amount
            if amount > 0 and sum(self._cells) > self._limit:
                self._cells[self._cell] -= amount
                return False
        return True

    def acquire(self, timeout: float = math.inf) -> bool:
        """Wait until one more is within the limit. Returns False after ``timeout`` seconds."""
        return bool(poll(lambda: self.add(1), timeout))

    def release(self) -> None:
        self.add(-1)


class WorkerLoad:
    """What each worker reports to the others. For one thread of each worker; it reports first."""

    def __init__(self, cells: memoryview[int], cell: int) -> None:
        self._cells = cells
        self._cell = cell

    def report(self, amount: int) -> None:
        self._cells[self._cell] = amount + 1  # 0 means that no worker has this cell

    def excess(self) -> int:
        """How much more load this worker has than the one with the least."""
        return self._cells[self._cell] - min(load for load in self._cells if load)
