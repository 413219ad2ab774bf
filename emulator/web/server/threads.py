"""The threads of a worker, started a little ahead of need and never by who needs one.

`threading.Thread.start` waits until the thread runs, which under load takes as long as all others take for
their turns; `concurrent.futures` has it wait in `submit`, and so the worker's loop, behind which all who come
next wait too. Here a thread of its own starts the others.
"""

from __future__ import annotations

import threading
from collections import deque

from emulator.web.server.seats import Seat, Work

_SPARE = 16
"""Threads that wait for those who come at once."""


class Threads:
    """At most so many, each for one piece of work at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[Seat] = []
        self._waiting: deque[Work] = deque()
        """Work for which there is no thread yet."""
        self._started = 0
        self._free = 0
        """Threads that have no work; below 0: work that waits."""
        self._over = False
        threading.Thread(target=self._start, name="threads", daemon=True).start()

    def run(self, work: Work) -> None:
        """Have one of the threads do ``work``, which raises nothing."""
        with self._lock:
            self._free -= 1
            if self._free < _SPARE and self._started < self._most:
                self._changed.notify()
            if not self._idle:
                self._waiting.append(work)
                return
            seat = self._idle.pop()
        seat.give(work)

    def shutdown(self, wait: bool = False) -> None:
        """No more threads are started; work goes on, and threads end with their process."""
        del wait
        with self._lock:
            self._over = True
            self._changed.notify()

    def _start(self) -> None:
        while True:
            with self._lock:
                while not self._over and not (self._free < _SPARE and self._started < self._most):
                    self._changed.wait()
                if self._over:
                    return
                self._started += 1
                self._free += 1
            threading.Thread(target=self._serve, name="request", daemon=True).start()

    def _serve(self) -> None:
        seat = Seat()
        while True:
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                if work is None:
                    self._idle.append(seat)
            if work is None:
                work = seat.take()
            if work is not None:
                work()
            with self._lock:
                self._free += 1
