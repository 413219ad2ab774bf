"""Signals between processes about background responses, sent through the store.

The process that makes a response writes a heartbeat every few seconds, and a process that wants to cancel the
response writes a cancel key. So any process can tell that a response is lost because its process died, and
any process can cancel it. Knows nothing of responses themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from emulator.storage.key_value import KeyValueStore, StoreFailed

ALIVE_SECONDS = 20.0
"""The age of the last heartbeat at which a process counts as dead."""
_HEARTBEAT_SECONDS = 2.0
_POLL_SECONDS = 0.5


class Signals:
    """Safe to share between threads. A failing store is ignored."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cancels: dict[str, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None

    def register(self, key: str, cancel: Callable[[], None]) -> None:
        """This process makes the response; ``cancel`` is called if another process requests it."""
        self._send_heartbeats([key])
        with self._lock:
            self._cancels[key] = cancel
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
                self._thread.start()

    def unregister(self, key: str) -> None:
        with self._lock:
            self._cancels.pop(key, None)
        with suppress(StoreFailed):
            self._store.delete([_alive(key), _cancelled(key)])

    def is_running(self, key: str) -> bool:
        """Return True if a process makes the response, or if the store cannot tell."""
        try:
            return self._store.get(_alive(key)) is not None
        except StoreFailed:
            return True

    def request_cancel(self, key: str, seconds: float) -> None:
        """Ask the response's process to cancel it, and wait at most ``seconds`` for the end."""
        with suppress(StoreFailed):
            self._store.put({_cancelled(key): b"1"}, ALIVE_SECONDS)
            until = time.monotonic() + seconds
            while self.is_running(key) and time.monotonic() < until:
                time.sleep(0.1)

    def _watch(self) -> None:
        """Send heartbeats and look for cancel requests until no response is registered."""
        last_heartbeat = time.monotonic()
        while True:
            time.sleep(_POLL_SECONDS)
            with self._lock:
                running = dict(self._cancels)
                if not running:
                    self._thread = None
                    return
            with suppress(StoreFailed):
                requested = self._store.get_many([_cancelled(key) for key in running])
                for key, cancel in running.items():
                    if _cancelled(key) in requested:
                        cancel()
            if time.monotonic() - last_heartbeat > _HEARTBEAT_SECONDS:
                last_heartbeat = time.monotonic()
                self._send_heartbeats(list(running))

    def _send_heartbeats(self, keys: list[str]) -> None:
        with suppress(StoreFailed):
            self._store.put({_alive(key): b"1" for key in keys}, ALIVE_SECONDS)


def _alive(key: str) -> str:
    return f"response-alive:{key}"


def _cancelled(key: str) -> str:
    return f"response-cancelled:{key}"
