"""Threads for the short work of beginning, kept for a while: a new one costs more than what it does.

Unlike those of `concurrent.futures` they are daemons: one that waits for a silent upstream holds up nobody.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
_IDLE_SECONDS = 10.0


class Starters:
    """As many threads as there is work at the same time. Safe to share between threads."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """What ``work`` returns or raises, when it is done in another thread."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  # of whoever asks for the result
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._work.put(run)
            if self._idle:
                self._idle -= 1
                return future
        threading.Thread(target=self._serve, name="starter", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # Work that came meanwhile has counted on this thread.
                    if self._work.empty():
                        self._idle -= 1
                        return
                continue
            work()
            with self._lock:
                self._idle += 1
