"""The threads of a worker, started a little ahead of need and never by who needs one.

`threading.Thread.start` waits until the thread runs, which under load takes as long as all others take for
their turns; `concurrent.futures` has it wait in `submit`, and so the worker's loop, behind which all who come
next wait too. Here a thread of its own starts the others.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_SPARE = 16
"""Threads that wait for those who come at once."""


class Threads:
    """At most so many, each for one piece of work at a time. What gunicorn's worker uses of an executor."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._started = 0
        self._free = 0
        """Threads that wait; below 0: work that waits."""
        self._over = False
        threading.Thread(target=self._start, name="threads", daemon=True).start()

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """What ``work`` returns or raises, when one of the threads has done it."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work(*given)
            except BaseException as error:  # noqa: BLE001  # of whoever asks for the result
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._changed:
            self._free -= 1
            if self._free < _SPARE and self._started < self._most:
                self._changed.notify()
        self._work.put(run)
        return future

    def shutdown(self, wait: bool = False) -> None:
        """No more threads are started; work goes on, and threads end with their process."""
        del wait
        with self._changed:
            self._over = True
            self._changed.notify()

    def _start(self) -> None:
        while True:
            with self._changed:
                while not self._over and not (self._free < _SPARE and self._started < self._most):
                    self._changed.wait()
                if self._over:
                    return
                self._started += 1
                self._free += 1
            threading.Thread(target=self._serve, name="request", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            with self._changed:
                self._free += 1
