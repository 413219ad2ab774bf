"""What processes tell one another of responses made in the background, by way of the store.

Who makes a response says every few seconds that it still does; who cancels one leaves word. So a response
whose process has died is known to be lost, and one can be cancelled from any process. Knows nothing of what
a response is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from emulator.storage.key_value import KeyValueStore, StoreFailed

ALIVE_SECONDS = 20.0
"""After which a process that has said nothing is taken to have died."""
_BEAT_SECONDS = 2.0
_LOOK_SECONDS = 0.5


class Signals:
    """Safe to share between threads. A store that fails says nothing."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._cancels: dict[str, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None

    def begin(self, key: str, cancel: Callable[[], None]) -> None:
        """This process makes the response; ``cancel`` is called if another one wants that."""
        self._beat([key])
        with self._lock:
            self._cancels[key] = cancel
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
                self._thread.start()

    def end(self, key: str) -> None:
        with self._lock:
            self._cancels.pop(key, None)
        with suppress(StoreFailed):
            self._store.delete([_alive(key), _cancelled(key)])

    def is_made(self, key: str) -> bool:
        """Whether some process makes it. Where nobody can say, it is taken to be."""
        try:
            return self._store.get(_alive(key)) is not None
        except StoreFailed:
            return True

    def cancel(self, key: str, seconds: float) -> None:
        """Have it cancelled, and wait for that, but no longer than ``seconds``."""
        with suppress(StoreFailed):
            self._store.put({_cancelled(key): b"1"}, ALIVE_SECONDS)
            until = time.monotonic() + seconds
            while self.is_made(key) and time.monotonic() < until:
                time.sleep(0.1)

    def _watch(self) -> None:
        """Until nothing is made here."""
        said = time.monotonic()
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                made = dict(self._cancels)
                if not made:
                    self._thread = None
                    return
            with suppress(StoreFailed):
                wanted = self._store.get_many([_cancelled(key) for key in made])
                for key, cancel in made.items():
                    if _cancelled(key) in wanted:
                        cancel()
            if time.monotonic() - said > _BEAT_SECONDS:
                said = time.monotonic()
                self._beat(list(made))

    def _beat(self, keys: list[str]) -> None:
        with suppress(StoreFailed):
            self._store.put({_alive(key): b"1" for key in keys}, ALIVE_SECONDS)


def _alive(key: str) -> str:
    return f"response-alive:{key}"


def _cancelled(key: str) -> str:
    return f"response-cancelled:{key}"
