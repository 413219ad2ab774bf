"""Tokens a minute and a day of each client key, as its `Grant` says.

What an answer takes is known when it has ended: a client whose budget is spent gets no further answer, and
those under way end. So a budget may be overdrawn by as much as is open at once (``client_open_requests``).
A window begins with the first tokens that are spent in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from operator import methodcaller

import structlog
from limits.errors import StorageError
from limits.storage import MemoryStorage, Storage

from emulator.client_keys import grant_of
from emulator.errors import InsufficientQuota, RateLimited
from emulator.storage.counters import shared_counters

log = structlog.get_logger()

_SECONDS = {"minute": 60, "day": 86_400}


class Budgets:
    """Safe to share between threads."""

    def __init__(self, store: str, otherwise: Storage | None = None) -> None:
        """Counted in the Redis ``store``, else in ``otherwise``, or in memory, which a restart forgets."""
        self._memory: Storage = MemoryStorage()
        self._shared = shared_counters(store) or otherwise or self._memory

    def check(self, client: str) -> None:
        """Raises `RateLimited`, or `InsufficientQuota` where the day's tokens are spent."""
        for unit, most in _budgets(client):
            key = _key(client, unit)
            if self._with(methodcaller("get", key)) < most:
                continue
            until = self._with(methodcaller("get_expiry", key))
            seconds = max(1, math.ceil(until - time.time()))
            headers = {"retry-after": str(seconds)}
            message = (
                f"This key has spent its {most} tokens a {unit}. Please try again in {seconds} s."
            )
            if unit == "day":
                raise InsufficientQuota(message, code="insufficient_quota", headers=headers)
            raise RateLimited(message, code="rate_limit_exceeded", headers=headers)

    def spend(self, client: str, tokens: int) -> None:
        """Take ``tokens`` of all of the client's budgets, more than there are if need be."""
        for unit, _ in _budgets(client) if tokens > 0 else ():
            self._with(methodcaller("incr", _key(client, unit), _SECONDS[unit], tokens))

    def _with(self, count: Callable[[Storage], float]) -> float:
        try:
            return count(self._shared)
        except StorageError as error:
            log.warning("tokens are counted in memory", reason=str(error))
            return count(self._memory)


def _budgets(client: str) -> Iterator[tuple[str, int]]:
    grant = grant_of(client)
    if grant.tokens_per_minute:
        yield "minute", grant.tokens_per_minute
    if grant.tokens_per_day:
        yield "day", grant.tokens_per_day


def _key(client: str, unit: str) -> str:
    """Without the amount: whoever gets a larger budget goes on from what is spent."""
    return f"emulator/tokens/{client}/{unit}"
