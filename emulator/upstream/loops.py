"""Detect a request that was sent by this proxy itself, because an upstream's URL leads back here.

Each proxy appends a word of its own to a header, like HTTP's Via (RFC 9110, section 7.6.3). A request that
arrives with that word has gone in a circle. The words are random, so they do not reveal a machine.
"""

from __future__ import annotations

from contextvars import ContextVar

HEADER = "x-emulator-via"
_MAX_PROXIES = 16
"""A longer chain is a circle of proxies, some of which drop words."""

_passed: ContextVar[tuple[str, ...]] = ContextVar("passed", default=())


def is_loop(header: str, own_word: str) -> bool:
    """Remember the words in ``header`` for this request; return True if it has been here before."""
    words = tuple(word.strip() for word in header.split(",") if word.strip())
    _passed.set((*words[:_MAX_PROXIES], own_word))
    return own_word in words or len(words) >= _MAX_PROXIES


def headers() -> dict[str, str]:
    """The header for requests that are sent to an upstream on behalf of the current request."""
    words = _passed.get()
    return {HEADER: ",".join(words)} if words else {}
