"""Threads for the short work of beginning, kept for a while: a new one costs more than what it does.

Unlike those of `concurrent.futures` they are daemons: one that waits for a silent upstream holds up nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from emulator.web.server.seats import Seat, Work

T = TypeVar("T")
_IDLE_SECONDS = 10.0


class Starters:
    """As many threads as there is work at the same time. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Seat] = []

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
            seat = self._idle.pop() if self._idle else None
        if seat is not None:
            seat.give(run)
        else:
            threading.Thread(target=self._serve, args=(run,), name="starter", daemon=True).start()
        return future

    def _serve(self, work: Work | None) -> None:
        seat = Seat()
        while work is not None:
            work()
            with self._lock:
                self._idle.append(seat)
            work = seat.take(_IDLE_SECONDS)
            if work is None:
                with self._lock:
                    given = seat not in self._idle
                    if not given:
                        self._idle.remove(seat)
                if given:  # just before it left
                    work = seat.take()
