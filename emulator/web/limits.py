"""Requests a minute, and requests that are open at once, of each client and of all.

Where they are counted: `emulator.storage.counters`. What a key's own `Grant` says comes before the setting.
The headers are OpenAI's ("Rate limits", "Rate limits in headers"). Who has no key is known by address.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog
from flask import Blueprint, Flask, Response, g, request
from limits import RateLimitItem, RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from emulator.client_keys import grant_of
from emulator.errors import RateLimited
from emulator.settings import Settings
from emulator.shared import leases
from emulator.shared.rates import KeeperStorage
from emulator.shared.wire import Wire
from emulator.storage.counters import shared_counters

log = structlog.get_logger()

_GRACE_SECONDS = 0.5


def add_limits(app: Flask, api: Blueprint, settings: Settings, wire: Wire | None = None) -> None:
    """Check the requests of ``api``, once their client is known; ``wire`` leads to the keeper."""
    rates = _Rates(settings, wire)
    open_requests = _OpenRequests(settings.client_open_requests, wire)

    @api.before_request
    def check() -> None:
        if request.method == "OPTIONS":
            return
        client = g.client or request.remote_addr or ""
        if open_requests.most:
            g.leave_open_request = open_requests.enter(client)
        rates.hit(client)

    @app.after_request
    def tell(response: Response) -> Response:
        if (leave := g.pop("leave_open_request", None)) is not None:
            response.call_on_close(leave)
        if (headers := g.pop("rate_headers", None)) is not None:
            response.headers.update(headers)
        return response


class _Rates:
    """Requests a minute. A Redis that fails is done without: each replica counts for itself then.

    So is a keeper.
    """

    def __init__(self, settings: Settings, wire: Wire | None) -> None:
        self._client = _item(settings.client_requests_per_minute)
        self._all = _item(settings.requests_per_minute)
        self._memory = MovingWindowRateLimiter(MemoryStorage())
        limited = self._client or self._all or settings.client_keys_file
        shared = shared_counters(settings.store) if limited else None
        if shared is None and wire is not None:
            shared = KeeperStorage(wire)
        self._shared = MovingWindowRateLimiter(shared) if shared is not None else self._memory

    def hit(self, client: str) -> None:
        """Raises `RateLimited`. The stricter of two limits is told."""
        own = _item(grant_of(client).requests_per_minute) or self._client
        asked = [(own, ("client", client)), (self._all, ("all",))]
        for item, names in asked:
            if item is None:
                continue
            try:
                self._hit(self._shared, item, names)
            except StorageError as error:
                log.warning("rate limits are counted in memory", reason=str(error))
                self._hit(self._memory, item, names)

    def _hit(
        self, limiter: MovingWindowRateLimiter, item: RateLimitItem, names: tuple[str, ...]
    ) -> None:
        allowed = limiter.hit(item, *names)
        window = limiter.get_window_stats(item, *names)
        seconds = max(0.0, window.reset_time - time.time())
        headers = {
            "x-ratelimit-limit-requests": str(item.amount),
            "x-ratelimit-remaining-requests": str(window.remaining),
            "x-ratelimit-reset-requests": f"{math.ceil(1000 * seconds)}ms",
        }
        before = g.get("rate_headers")
        if before is None or window.remaining < int(before["x-ratelimit-remaining-requests"]):
            g.rate_headers = headers
        if not allowed:
            g.rate_headers = headers
            whose = "of this client" if names[0] == "client" else "of all clients"
            raise RateLimited(
                f"Rate limit reached: {item.amount} requests a minute {whose}. "
                f"Please try again in {seconds:.1f} s.",
                code="rate_limit_exceeded",
                headers={"retry-after": str(max(1, math.ceil(seconds)))},
            )


class _OpenRequests:
    def __init__(self, most: int, wire: Wire | None = None) -> None:
        self.most = most
        self._wire = wire
        self._changed = threading.Condition()
        self._open: Counter[str] = Counter()

    def enter(self, client: str) -> Callable[[], None]:
        """What is to be called when the request has ended. Raises `RateLimited`."""
        # Whoever has read an answer to its end may ask again before we have put it away.
        if self._wire is not None:
            leave = leases.take(self._wire, f"client:{client}", self.most, _GRACE_SECONDS)
        else:
            leave = self._enter(client)
        if leave is None:
            raise RateLimited(
                f"This client has {self.most} open requests, as many as it may: "
                "wait for one of them to end.",
                code="too_many_open_requests",
                headers={"retry-after": "1"},
            )
        return leave

    def _enter(self, client: str) -> Callable[[], None] | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._open[client] < self.most, _GRACE_SECONDS):
                return None
            self._open[client] += 1
        return partial(self._leave, client)

    def _leave(self, client: str) -> None:
        with self._changed:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]
            self._changed.notify_all()


def _item(a_minute: int) -> RateLimitItem | None:
    return RateLimitItemPerMinute(a_minute, namespace="emulator") if a_minute else None
