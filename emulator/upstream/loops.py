"""Detect a request that was sent by this proxy itself, because an upstream's URL leads back here.

Each proxy appends its own random token to a header, like HTTP's Via (RFC 9110, section 7.6.3). A request that
arrives with this proxy's token is in a loop. Random tokens do not reveal a machine.
"""

from __future__ import annotations

from contextvars import ContextVar

HEADER = "x-emulator-via"
_MAX_PROXIES = 16
"""A longer chain counts as a loop: some proxy in it may drop tokens."""

_tokens: ContextVar[tuple[str, ...]] = ContextVar("tokens", default=())


def is_loop(header: str, own_token: str) -> bool:
    """Remember the tokens in ``header`` for this request; return True if the request is in a loop."""
    tokens = tuple(token.strip() for token in header.split(",") if token.strip())
    _tokens.set((*tokens[:_MAX_PROXIES], own_token))
    return own_token in tokens or len(tokens) >= _MAX_PROXIES


def headers() -> dict[str, str]:
    """The header for requests that are sent to an upstream on behalf of the current request."""
    tokens = _tokens.get()
    return {HEADER: ",".join(tokens)} if tokens else {}
