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
REGISTERS = 2
"""Numbers of its state: failures in a row, and the nanosecond (monotonic) from which one request may try."""
_NANO = 1_000_000_000


class Breaker:
    """Opens after so many failures in a row. Safe to share between threads."""

    def __init__(
        self,
        failures: int,
        seconds: float,
        now: Callable[[], float] = time.monotonic,
        state: memoryview[int] | None = None,
    ) -> None:
        """With 0 ``failures`` it never opens.

        ``state`` is that of several workers, which all find it changed. Between them there is no lock: two
        who write at the same time may count a failure too few, or try twice.
        """
        self._limit = failures or math.inf
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._last = ""
        self._state = memoryview(bytearray(8 * REGISTERS)).cast("q") if state is None else state

    def check(self) -> None:
        """To be called before a request. Raises `UpstreamFailed` while the upstream is left alone."""
        with self._lock:
            failures, closed_from = self._state
            if failures < self._limit:
                return
            left = closed_from / _NANO - self._now()
            if left <= 0:
                # This request is the trial; whoever comes meanwhile waits for what becomes of it.
                self._leave_alone()
                return
        message = "The upstream has failed several times in a row and is left alone for a moment."
        raise UpstreamFailed(
            f"{message} {self._last}".strip(),
            code="upstream_down",
            headers={"retry-after": str(math.ceil(left)), "x-should-retry": "true"},
            status=503,
        )

    def succeeded(self) -> None:
        with self._lock:
            self._state[0] = 0

    def failed(self, error: UpstreamFailed) -> None:
        """Any answer but these says that the upstream is there."""
        with self._lock:
            if error.status not in _DOWN:
                self._state[0] = 0
                return
            self._state[0] += 1
            self._last = error.message
            if self._state[0] >= self._limit:
                self._leave_alone()

    def _leave_alone(self) -> None:
        self._state[1] = int((self._now() + self._seconds) * _NANO)
