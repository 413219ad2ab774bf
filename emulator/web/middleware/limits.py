"""Limits of each client and of all: requests per minute, and answers that are being made at the same time.

`emulator.database.counters` counts both. A key's own `Grant` overrides the setting. A client without a key
is known by its address, in IPv6 by its network. The headers are OpenAI's ("Rate limits", "Rate limits in
headers"): of requests, "remaining" are those that the client may send immediately, and "reset" is the time
until it may send its whole limit. A request that makes no answer (a poll, a cancellation, an approval) counts
per minute only, so that a client at its limit can end what it has begun.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable

from emulator.core.client_keys import grant_of
from emulator.core.errors import RateLimited
from emulator.database.counters import Counters, Rate
from emulator.settings.settings import Settings

_GRACE_SECONDS = 0.5
"""A client that has read an answer to its end may ask for the next one before the place is released."""


class Limits:
    """Safe to share between threads. For ``client`` see `recognizer`; ``address`` is the connection's."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._open_answers = settings.client_open_requests
        self._per_minute = settings.client_requests_per_minute
        self._of_all = settings.requests_per_minute
        self._counters = counters

    def count_request(self, client: str, address: str) -> dict[str, str]:
        """Count a request, and return the headers that report the stricter limit. Raises `RateLimited`."""
        own = grant_of(client).requests_per_minute or self._per_minute
        if not (own or self._of_all):
            return {}
        limits = (
            (f"client/{client or _network(address)}", own, "of this client"),
            ("all", self._of_all, "of all clients"),
        )
        rates = [self._hit(key, limit, scope) for key, limit, scope in limits if limit]
        return _headers(*min(rates, key=lambda found: found[0].remaining))

    def open_answer(self, client: str, address: str) -> Callable[[], object]:
        """Take one of the client's places for answers; returns what releases it. Raises `RateLimited`."""
        if not self._open_answers:
            return lambda: None
        name = f"open/{client or _network(address)}"
        release = self._counters.open(name, self._open_answers, _GRACE_SECONDS)
        if release is None:
            raise RateLimited(
                f"This client has {self._open_answers} open requests, its limit. "
                "Retry when one of them has finished.",
                code="too_many_open_requests",
                headers={"retry-after": "1"},
            )
        return release

    def _hit(self, key: str, limit: int, scope: str) -> tuple[Rate, int]:
        """Raises `RateLimited`."""
        rate = self._counters.hit(key, limit)
        if not rate.allowed:
            raise RateLimited(
                f"Rate limit reached: {limit} requests per minute {scope}. "
                f"Please try again in {rate.retry_seconds:.1f} s.",
                code="rate_limit_exceeded",
                headers={
                    "retry-after": str(max(1, math.ceil(rate.retry_seconds))),
                    **_headers(rate, limit),
                },
            )
        return rate, limit


def _network(address: str) -> str:
    """A client is given a whole /64 of IPv6 addresses (RFC 6177), each of which it may use."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a server in front of the proxy wrote it
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    # Where one socket listens for both, IPv4 addresses are written in IPv6.
    mapped = known.ipv4_mapped
    return str(mapped or ipaddress.ip_network((known, 64), strict=False))


def _headers(rate: Rate, limit: int) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": str(limit),
        "x-ratelimit-remaining-requests": str(rate.remaining),
        "x-ratelimit-reset-requests": f"{math.ceil(1000 * rate.reset_seconds)}ms",
    }
