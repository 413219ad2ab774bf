"""Where a pool's idle threads wait for work, each at a lock of its own.

With one queue for all, whoever takes work from it wakes the next thread, which finds nothing (CPython's
`queue.SimpleQueue` passes its lock on), and the threads take turns, each with a cold stack. Here work wakes
one thread, the last that came to rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[], None]


class Seat:
    """Of one thread, which takes one piece of work at a time."""

    def __init__(self) -> None:
        self._empty = threading.Lock()
        self._empty.acquire()
        self._work: Work | None = None

    def give(self, work: Work) -> None:
        """To be called once for each `take`."""
        self._work = work
        self._empty.release()

    def take(self, seconds: float = -1) -> Work | None:
        """What was given, once it is; None if nothing was for so many seconds."""
        if not self._empty.acquire(timeout=seconds):
            return None
        work, self._work = self._work, None
        return work
