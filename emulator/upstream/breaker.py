"""A circuit breaker: an upstream that is down is left alone for a while, and then tried by one request.

Down is who cannot be reached, is silent, or answers 502, 503 or 504. A 500 or a 429 is an answer: it may
be about one request, or one client.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from emulator.errors import UpstreamFailed

_DOWN = (502, 503, 504)


class Breaker:
    """Opens after so many failures in a row. Safe to share between threads."""

    def __init__(
        self, failures: int, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """With 0 ``failures`` it never opens."""
        self._limit = failures or math.inf
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_from = 0.0

    def check(self) -> None:
        """To be called before a request. Raises `UpstreamFailed` while the upstream is left alone."""
        with self._lock:
            if self._failures < self._limit:
                return
            left = self._closed_from - self._now()
            if left <= 0:
                # This request is the trial; whoever comes meanwhile waits for what becomes of it.
                self._closed_from = self._now() + self._seconds
                return
        raise UpstreamFailed(
            "The upstream has failed several times in a row and is left alone for a moment.",
            code="upstream_down",
            headers={"retry-after": str(math.ceil(left)), "x-should-retry": "true"},
            status=503,
        )

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0

    def failed(self, error: UpstreamFailed) -> None:
        """Any answer but these says that the upstream is there."""
        with self._lock:
            if error.status not in _DOWN:
                self._failures = 0
                return
            self._failures += 1
            if self._failures >= self._limit:
                self._closed_from = self._now() + self._seconds
