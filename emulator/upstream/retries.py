"""When a request that an upstream refused is sent again: as often, as late and as spread as is polite.

What is tried again: an upstream that cannot be reached, 408, 409, 429 and all from 500 on, unless
``x-should-retry`` says otherwise. ``retry-after`` (RFC 9110, 10.2.3, and OpenAI's ``retry-after-ms``) is
honoured, with a little more so that not all who wait come back at once. Knows nothing of HTTP clients.
"""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from emulator.errors import UpstreamFailed

LONGEST_WAIT = 60.0
"""Seconds. An upstream that asks for more of them is not waited for: its client is told."""
_FIRST, _LAST = 0.5, 8.0
_FOR_GOOD = (501, 505, 508)
"""Not implemented, another version of HTTP, a loop: the same the next time."""


@dataclass(frozen=True)
class Retries:
    times: int
    longest: float = LONGEST_WAIT
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def pause(self, attempt: int, error: UpstreamFailed) -> float | None:
        """Seconds to wait before the next attempt; None if there is none. The first ``attempt`` is 0."""
        if attempt >= self.times or not may_pass(error):
            return None
        advised = advised_seconds(error.headers, self.now())
        if advised is None or advised <= 0:
            return min(_FIRST * 2.0**attempt, _LAST) * (1 - 0.5 * self.chance())
        return None if advised > self.longest else advised * (1 + 0.1 * self.chance())

    @staticmethod
    def final(error: UpstreamFailed) -> UpstreamFailed:
        """The error for the client, who need not try again what was tried here."""
        return replace(error, headers={"x-should-retry": "false", **error.headers})


def may_pass(error: UpstreamFailed) -> bool:
    """Whether the same request may do better at another time."""
    if (said := error.headers.get("x-should-retry")) in ("true", "false"):
        return said == "true"
    if error.status in _FOR_GOOD:
        return False
    return error.status in (408, 409, 429) or error.status >= 500


def may_do_elsewhere(error: UpstreamFailed) -> bool:
    """Whether another upstream may do better: the fault is this one's, and there is time left."""
    theirs = error.status in (408, 429) or error.status >= 500
    return theirs and error.code != "answer_timeout"


def advised_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """What ``retry-after-ms`` or ``retry-after`` says, which is seconds or a date."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if not math.isnan(seconds):
            return seconds
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return date.timestamp() - now
    except (ValueError, TypeError, OverflowError, OSError):
        return None
