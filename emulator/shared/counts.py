"""Numbers of all workers together, in memory that they share: cheap enough for each request.

Each worker has a slot of its own in every number, so that none waits for another, and a dead one's shares are
known: the master clears them. A limit is checked after one's own share was added, so that two who come at
the same time may both be refused, and never both be let in wrongly.
"""

from __future__ import annotations

import math
import mmap
import threading
import time
from collections.abc import Callable, Collection
from typing import Protocol

SLOTS = 128
"""More workers than that do not run at once, with those that still end."""
_LOOK_SECONDS = (0.001, 0.02)
"""Between two looks for a place: whoever has just had an answer finds one at once."""


class Room(Protocol):
    """So many places; `threading.Semaphore` is one."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool: ...

    def release(self) -> None: ...


class Counts:
    """To be made before workers are forked; each then takes its slot."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = list(names)
        self._memory = memoryview(mmap.mmap(-1, 8 * SLOTS * (len(self._names) + 1))).cast("q")
        self.slot = 0
        """That of this process."""

    @property
    def used_slots(self) -> int:
        """The first so many slots are those that workers have, or had."""
        return self._memory[-1]

    def free_slot(self, taken: Collection[int]) -> int:
        """A slot that is not among ``taken``. Called by the master."""
        slot = next(n for n in range(SLOTS) if n not in taken)
        self._memory[-1] = max(self._memory[-1], slot + 1)
        return slot

    def clear(self, slot: int) -> None:
        """Its worker is dead."""
        for row in range(len(self._names)):
            self._memory[row * SLOTS + slot] = 0

    def take_slot(self, slot: int) -> None:
        """From here on this process counts there."""
        self.slot = slot

    def tally(self, name: str, most: int) -> Tally:
        return Tally(self._row(name), self.slot, most)

    def burden(self, name: str) -> Burden:
        return Burden(self._row(name), self.slot)

    def _row(self, name: str) -> memoryview[int]:
        first = self._names.index(name) * SLOTS
        return self._memory[first : first + SLOTS]


class Tally:
    """One number, and this worker's share of it. Safe to share between threads."""

    def __init__(self, shares: memoryview[int], slot: int, most: int) -> None:
        self._shares = shares
        self._slot = slot
        self._most = most
        self._lock = threading.Lock()

    def take(self, amount: int) -> bool:
        """Add ``amount``, or give back if it is negative; False, and nothing done, if that is too much."""
        with self._lock:
            self._shares[self._slot] += amount
            if amount > 0 and sum(self._shares) > self._most:
                self._shares[self._slot] -= amount
                return False
        return True


class Burden:
    """What each worker has to carry, as it tells the others. For one thread of each, which tells first."""

    def __init__(self, shares: memoryview[int], slot: int) -> None:
        self._shares = shares
        self._slot = slot

    def tell(self, amount: int) -> None:
        self._shares[self._slot] = amount + 1  # 0: no worker is there

    def lead(self) -> int:
        """How much more this worker has than the one that has least."""
        return self._shares[self._slot] - min(share for share in self._shares if share)


def wait_for_place(take: Callable[[], bool], seconds: float) -> bool:
    """Whether ``take`` gave one in so many seconds."""
    until = time.monotonic() + seconds
    pause, longest = _LOOK_SECONDS
    while not take():
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, longest)
    return True


class SharedRoom:
    """See `Room`: places of all workers together."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        seconds = 0.0 if not blocking else math.inf if timeout is None else timeout
        return wait_for_place(lambda: self._tally.take(1), seconds)

    def release(self) -> None:
        self._tally.take(-1)


class Places:
    """Places of each name that all workers together have. Safe to share between threads."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._rooms: dict[str, SharedRoom] = {}

    def take(self, name: str, most: int, seconds: float) -> Callable[[], None] | None:
        """What leaves the place again, to be called once; None if there was none within ``seconds``.

        ``name`` is one of those that `Counts` was made with, and ``most`` always the same of it.
        """
        with self._lock:
            if name not in self._rooms:
                self._rooms[name] = SharedRoom(self._counts.tally(name, most))
            room = self._rooms[name]
        return room.release if room.acquire(timeout=seconds) else None
