"""A circuit breaker: requests to an upstream that is down are paused, then one request tries it.

    closed      requests are sent. After the configured number of failures in a row: open
    open        requests fail immediately, for the configured number of seconds. Then: half open
    half open   one request is sent, and the breaker is open to all others until its outcome is known (or the
                seconds have passed again, if it never reports one). It succeeds: closed; it fails: open

Down means unreachable, silent, or 502, 503 or 504. A 500 or a 429 is an answer: it may be about one request,
or one client.
"""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections.abc import Callable

from emulator.core.errors import UpstreamFailed

_DOWN = (502, 503, 504)
_SECONDS = 5.0
"""How long requests pause; then one request tests the upstream."""
_BREAKERS = 256
"""Per upstream: one for each model and key, in a table of this size."""


class Breakers:
    """The breakers of one upstream: a model or a client's key that fails does not stop the others.

    They are found by a hash, so that clients cannot make more.
    """

    def __init__(self, failures: int) -> None:
        self._breakers = [Breaker(failures, _SECONDS) for _ in range(_BREAKERS)]

    def of(self, model: str, key: str | None) -> Breaker:
        return self._breakers[
            zlib.crc32(f"{model}\n{key or ''}".encode(errors="replace")) % _BREAKERS
        ]


class Breaker:
    """Safe to share between threads."""

    def __init__(
        self,
        failures: int,
        seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """With 0 ``failures`` the breaker never opens."""
        self._limit = failures or math.inf
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._last_message = ""
        self._failures = 0
        """In a row."""
        self._open_until = 0.0

    def check(self) -> None:
        """Call before each request. Raises `UpstreamFailed` while the breaker is open."""
        with self._lock:
            if self._failures < self._limit:
                return
            remaining = self._open_until - self._now()
            if remaining <= 0:
                self._open()  # for all but this request
                return
        message = (
            "The upstream failed several times in a row; requests to it are paused for "
            f"{math.ceil(remaining)} s."
        )
        raise UpstreamFailed(
            f"{message} {self._last_message}".strip(),
            code="upstream_down",
            headers={"retry-after": str(math.ceil(remaining)), "x-should-retry": "true"},
            status=503,
        )

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0

    def failed(self, error: UpstreamFailed) -> None:
        """Record a failed request. An ``error`` that the upstream answered shows that it is up."""
        with self._lock:
            if error.status not in _DOWN:
                self._failures = 0
                return
            self._failures += 1
            self._last_message = error.message
            if self._failures >= self._limit:
                self._open()

    def _open(self) -> None:
        self._open_until = self._now() + self._seconds
