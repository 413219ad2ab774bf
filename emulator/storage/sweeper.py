"""Calls tasks every few seconds in a thread of its own. Knows nothing of what they remove."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from emulator.core.errors import EmulatorError

log = structlog.get_logger()

SECONDS = 10.0


class Sweeper:
    def __init__(self, *tasks: Callable[[], None], seconds: float = SECONDS) -> None:
        self._tasks = tasks
        self._seconds = seconds
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for task in self._tasks:
                try:
                    task()
                except EmulatorError as error:  # a full disk may have space again next time
                    log.warning("sweep failed", reason=error.message)
            if self._closed.wait(self._seconds):
                return
