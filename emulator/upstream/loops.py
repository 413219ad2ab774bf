"""Proxies that a request has come through, so that one which leads back to itself is noticed.

Each proxy adds a word of its own to a header, as HTTP's Via header (RFC 9110, 7.6.3) has it; a request that
comes with that word has gone in a circle. The words are random: they tell nobody which machine it was.
"""

from __future__ import annotations

from contextvars import ContextVar

HEADER = "x-emulator-via"
_LONGEST = 16
"""Proxies behind one another; more are a circle of some that lose words on the way."""

_passed: ContextVar[tuple[str, ...]] = ContextVar("passed", default=())


def is_loop(header: str, own: str) -> bool:
    """Take note of where the request at hand has been; True if it has been here, ``own`` being our word."""
    words = tuple(word.strip() for word in header.split(",") if word.strip())
    _passed.set((*words[:_LONGEST], own))
    return own in words or len(words) >= _LONGEST


def headers() -> dict[str, str]:
    """What goes with each request to an upstream that serves the request at hand."""
    passed = _passed.get()
    return {HEADER: ",".join(passed)} if passed else {}
