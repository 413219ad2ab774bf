"""Limits of each client and of all: requests per minute, and open requests.

`emulator.database.counters` counts both. A key's own `Grant` overrides the setting. A client without a key is
known by its address. The headers are OpenAI's ("Rate limits", "Rate limits in headers").
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flask import Blueprint, Flask, Response, g, request

from emulator.core.client_keys import grant_of
from emulator.core.errors import RateLimited
from emulator.database.counters import Counters, Rate
from emulator.settings.settings import Settings

_GRACE_SECONDS = 0.5
"""A client that has read an answer to its end may send the next request before the slot is released."""


CheckLimits = Callable[[str], None]
"""Counts the current request of a client until its response ends. Raises `RateLimited`."""


def limit_checker(settings: Settings, counters: Counters) -> CheckLimits:
    open_requests = settings.client_open_requests

    def check(client: str) -> None:
        grant, client = grant_of(client), client or request.remote_addr or ""
        if open_requests:
            release = counters.open(f"open/{client}", open_requests, _GRACE_SECONDS)
            if release is None:
                raise RateLimited(
                    f"This client has {open_requests} open requests, its limit. "
                    "Retry when one of them has finished.",
                    code="too_many_open_requests",
                    headers={"retry-after": "1"},
                )
            g.release_open_request = release
        per_minute = grant.requests_per_minute or settings.client_requests_per_minute
        _hit(counters, f"client/{client}", per_minute, "of this client")
        _hit(counters, "all", settings.requests_per_minute, "of all clients")

    return check


def add_limits(app: Flask, api: Blueprint, check: CheckLimits) -> None:
    """Check the requests of ``api``, once their client is known."""

    @api.before_request
    def check_client() -> None:
        if request.method != "OPTIONS":
            check(g.client)

    @app.after_request
    def finish(response: Response) -> Response:
        if (release := g.pop("release_open_request", None)) is not None:
            response.call_on_close(release)
        if (headers := g.pop("rate_headers", None)) is not None:
            response.headers.update(headers)
        return response


def _hit(counters: Counters, key: str, limit: int, scope: str) -> None:
    """Count a request, if there is a limit. Raises `RateLimited`."""
    if not limit:
        return
    rate = counters.hit(key, limit)
    _set_headers(rate, limit)
    if not rate.allowed:
        raise RateLimited(
            f"Rate limit reached: {limit} requests per minute {scope}. "
            f"Please try again in {rate.seconds:.1f} s.",
            code="rate_limit_exceeded",
            headers={"retry-after": str(max(1, math.ceil(rate.seconds)))},
        )


def _set_headers(rate: Rate, limit: int) -> None:
    """The headers report the stricter of the two limits."""
    before = g.get("rate_headers")
    stricter = before is None or rate.remaining < int(before["x-ratelimit-remaining-requests"])
    if stricter or not rate.allowed:
        g.rate_headers = {
            "x-ratelimit-limit-requests": str(limit),
            "x-ratelimit-remaining-requests": str(rate.remaining),
            "x-ratelimit-reset-requests": f"{math.ceil(1000 * rate.seconds)}ms",
        }
