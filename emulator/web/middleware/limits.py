"""Requests a minute, and requests that are open at once, of each client and of all.

Requests a minute are counted in Redis where that is the store; else, as open requests always, in memory,
which several workers share (`emulator.shared`). What a key's own `Grant` says comes before the setting.
The headers are OpenAI's ("Rate limits", "Rate limits in headers"). Who has no key is known by address.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import structlog
from flask import Blueprint, Flask, Response, g, request
from limits import RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import MemoryStorage, Storage
from limits.strategies import MovingWindowRateLimiter

from emulator.client_keys import grant_of
from emulator.errors import RateLimited
from emulator.settings import Settings
from emulator.shared.rates import Rate, Rates
from emulator.storage.counters import shared_counters

if TYPE_CHECKING:
    from emulator.web.server.keeper import Keeper

log = structlog.get_logger()

_GRACE_SECONDS = 0.5


def add_limits(
    app: Flask, api: Blueprint, settings: Settings, keeper: Keeper | None = None
) -> None:
    """Check the requests of ``api``, once their client is known; ``keeper`` has what workers share."""
    limits = _Limits(settings, None if keeper is None else keeper.rates)
    most = settings.client_open_requests
    enter = _OpenRequests().enter if keeper is None else keeper.open_requests.enter

    @api.before_request
    def check() -> None:
        if request.method == "OPTIONS":
            return
        client = g.client or request.remote_addr or ""
        if most:
            # Whoever has read an answer to its end may ask again before we have put it away.
            leave = enter(client, most, _GRACE_SECONDS)
            if leave is None:
                raise RateLimited(
                    f"This client has {most} open requests, as many as it may: "
                    "wait for one of them to end.",
                    code="too_many_open_requests",
                    headers={"retry-after": "1"},
                )
            g.leave_open_request = leave
        limits.hit(client)

    @app.after_request
    def tell(response: Response) -> Response:
        if (leave := g.pop("leave_open_request", None)) is not None:
            response.call_on_close(leave)
        if (headers := g.pop("rate_headers", None)) is not None:
            response.headers.update(headers)
        return response


class _Limits:
    """Requests a minute. A Redis that fails is done without: each replica counts for itself then."""

    def __init__(self, settings: Settings, shared: Rates | None) -> None:
        self._client = settings.client_requests_per_minute
        self._all = settings.requests_per_minute
        limited = self._client or self._all or settings.client_keys_file
        redis = shared_counters(settings.store) if limited else None
        self._own: _Counter = shared or _MovingWindows(MemoryStorage())
        self._counter = self._own if redis is None else _MovingWindows(redis)

    def hit(self, client: str) -> None:
        """Raises `RateLimited`. The stricter of two limits is told."""
        own = grant_of(client).requests_per_minute or self._client
        for most, names in ((own, ("client", client)), (self._all, ("all",))):
            if not most:
                continue
            try:
                rate = self._counter.hit("/".join(names), most)
            except StorageError as error:
                log.warning("rate limits are counted in memory", reason=str(error))
                rate = self._own.hit("/".join(names), most)
            _tell(rate, most)
            if not rate.allowed:
                whose = "of this client" if names[0] == "client" else "of all clients"
                raise RateLimited(
                    f"Rate limit reached: {most} requests a minute {whose}. "
                    f"Please try again in {rate.seconds:.1f} s.",
                    code="rate_limit_exceeded",
                    headers={"retry-after": str(max(1, math.ceil(rate.seconds)))},
                )


def _tell(rate: Rate, most: int) -> None:
    before = g.get("rate_headers")
    stricter = before is None or rate.remaining < int(before["x-ratelimit-remaining-requests"])
    if stricter or not rate.allowed:
        g.rate_headers = {
            "x-ratelimit-limit-requests": str(most),
            "x-ratelimit-remaining-requests": str(rate.remaining),
            "x-ratelimit-reset-requests": f"{math.ceil(1000 * rate.seconds)}ms",
        }


class _Counter(Protocol):
    def hit(self, client: str, most: int) -> Rate:
        """Count a request, unless it is one too many. Raises ``StorageError``."""


class _MovingWindows:
    """Counted by the ``limits`` library."""

    def __init__(self, storage: Storage) -> None:
        self._limiter = MovingWindowRateLimiter(storage)

    def hit(self, client: str, most: int) -> Rate:
        item = _item(most)
        allowed = self._limiter.hit(item, client)
        window = self._limiter.get_window_stats(item, client)
        return Rate(allowed, window.remaining, max(0.0, window.reset_time - time.time()))


@lru_cache(maxsize=64)
def _item(a_minute: int) -> RateLimitItemPerMinute:
    return RateLimitItemPerMinute(a_minute, namespace="emulator")


class _OpenRequests:
    """As `emulator.shared.open_requests.OpenRequests`, of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: Counter[str] = Counter()

    def enter(self, client: str, most: int, seconds: float) -> Callable[[], None] | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._open[client] < most, seconds):
                return None
            self._open[client] += 1
        return partial(self._leave, client)

    def _leave(self, client: str) -> None:
        with self._changed:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]
            self._changed.notify_all()
