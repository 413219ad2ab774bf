"""Tokens per minute and per day of each client key, as its `Grant` says.

The tokens of an answer are known when it has ended. A client whose budget is spent gets no new answer, and
its open answers end as usual, so a budget may be overdrawn by the client's open requests
(``client_open_requests``). A window begins with the first tokens that are spent in it.
`emulator.database.counters` says where they are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from emulator.core.client_keys import grant_of
from emulator.core.errors import InsufficientQuota, RateLimited
from emulator.database.counters import Counters

_SECONDS = {"minute": 60, "day": 86_400}


class Budgets:
    """Safe to share between threads."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def check(self, client: str) -> None:
        """Raises `RateLimited`, or `InsufficientQuota` if the day's tokens are spent."""
        for unit, limit in _budgets(client):
            spent, window_end = self._counters.spent(_key(client, unit))
            if spent < limit:
                continue
            seconds = max(1, math.ceil(window_end - self._counters.now()))
            headers = {"retry-after": str(seconds)}
            message = f"This key has spent its {limit} tokens per {unit}. Try again in {seconds} s."
            if unit == "day":
                raise InsufficientQuota(message, code="insufficient_quota", headers=headers)
            raise RateLimited(message, code="rate_limit_exceeded", headers=headers)

    def spend(self, client: str, tokens: int) -> None:
        """Take ``tokens`` from all of the client's budgets, which may overdraw them."""
        for unit, _ in _budgets(client) if tokens > 0 else ():
            self._counters.spend(_key(client, unit), tokens, _SECONDS[unit])


def _budgets(client: str) -> Iterator[tuple[str, int]]:
    grant = grant_of(client)
    if grant.tokens_per_minute:
        yield "minute", grant.tokens_per_minute
    if grant.tokens_per_day:
        yield "day", grant.tokens_per_day


def _key(client: str, unit: str) -> str:
    """Without the limit, so that a client whose budget is raised keeps its spent tokens."""
    return f"emulator/tokens/{client}/{unit}"
