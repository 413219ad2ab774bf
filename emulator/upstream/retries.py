"""Decide when a refused request is sent again.

Retried are: an upstream that cannot be reached, 408, 409, 429, and every status from 500 on, unless
``x-should-retry`` decides otherwise. ``retry-after`` (RFC 9110, 10.2.3, and OpenAI's ``retry-after-ms``) is
honoured, plus up to a tenth, so that waiting clients do not all return at the same moment. Without it the
pause doubles with each attempt, minus up to a half. Knows nothing of HTTP clients.
"""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emulator.core.errors import UpstreamFailed
from emulator.upstream.failures import CONTEXT_CODE
from emulator.upstream.routes import Route

MAX_WAIT = 60.0
"""Seconds. If an upstream advises a longer pause, its client gets the error instead."""
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 8.0
_PERMANENT = (501, 505, 508)
"""Not implemented, unsupported HTTP version, loop: another attempt has the same outcome."""


@dataclass(frozen=True)
class Retries:
    max_retries: int
    max_wait: float = MAX_WAIT
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def pause(self, attempt: int, error: UpstreamFailed) -> float | None:
        """Seconds until the next attempt, or None if there is none. The first ``attempt`` is 0."""
        if attempt >= self.max_retries or not is_temporary(error):
            return None
        advised = advised_seconds(error.headers, self.now())
        if advised is None or advised <= 0:
            return min(_FIRST_PAUSE * 2.0**attempt, _MAX_PAUSE) * (1 - 0.5 * self.chance())
        return None if advised > self.max_wait else advised * (1 + 0.1 * self.chance())


def is_temporary(error: UpstreamFailed) -> bool:
    """Return True if the same request may succeed later."""
    if (advice := error.headers.get("x-should-retry")) in ("true", "false"):
        return advice == "true"
    if error.status in _PERMANENT:
        return False
    return error.status in (408, 409, 429) or error.status >= 500


def may_succeed_at(other: Route, error: UpstreamFailed, failed: Route) -> bool:
    """Return True if another upstream may succeed: the fault is the first one's, or its model's context is
    shorter, and time remains."""
    if error.code == CONTEXT_CODE:
        return 0 < failed.context_length < other.context_length
    is_upstreams_fault = error.status in (408, 429) or error.status >= 500
    return is_upstreams_fault and error.code != "answer_timeout"


def advised_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """The pause in ``retry-after-ms`` or ``retry-after`` (seconds or a date); None without either."""
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
