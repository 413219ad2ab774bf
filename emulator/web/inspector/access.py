"""Who may look, and at whose requests.

With client keys a client sees its own requests; ``inspector_key`` opens all. Without any key only somebody
at this machine may look. A browser presents its key once and gets a session, a record of `SharedState`:
the cookie holds a random token, never a key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from flask import Request, Response

from emulator.addresses import is_loopback
from emulator.errors import Forbidden, Unauthorized
from emulator.settings import Settings
from emulator.shared.state import SharedState
from emulator.web.middleware.authorization import presented_key

COOKIE = "emulator_inspector"
SESSION_SECONDS = 12 * 3600.0
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True)
class Viewer:
    """``client`` is whose requests are shown; None for all of them."""

    client: str | None
    signed_in: bool = False
    asks_as: str = ""
    """The client that the viewer's own requests are of, with what its key is good for."""


class Access:
    """Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        recognize: Callable[[str], str],
        state: SharedState,
    ) -> None:
        """``recognize`` gives the client who holds a key, or raises `Unauthorized`."""
        self._clients = settings.wants_keys
        self._recognize = recognize
        self._all = settings.inspector_key.get_secret_value()
        self._local = is_loopback(settings.host)
        self._state = state

    def viewer(self, request: Request) -> Viewer:
        """Who is looking. Raises `Unauthorized` where a key is wanted, `Forbidden` where none would
        help.
        """
        if not (self._clients or self._all):
            if not self._local or not _is_here(request):
                raise Forbidden(
                    "The inspector is open to this machine alone. Set inspector_key (--inspector-key) "
                    "to look from elsewhere.",
                    code="inspector_local",
                )
            return Viewer(None)
        if key := presented_key():
            return self._known(key)
        token = request.cookies.get(COOKIE, "")
        session_key = self._state.get(_session(token)) if token else None
        if session_key is None:
            raise Unauthorized("The inspector wants a key.", code="inspector_key")
        return self._known(session_key)

    def sign_in(self, request: Request, key: str, response: Response) -> None:
        """Give the browser a session. Raises `Unauthorized`."""
        self._known(key)
        token = secrets.token_urlsafe(32)
        self._state.put(_session(token), key, SESSION_SECONDS)
        response.set_cookie(
            COOKIE,
            token,
            max_age=int(SESSION_SECONDS),
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )

    def sign_out(self, request: Request, response: Response) -> None:
        self._state.delete(_session(request.cookies.get(COOKIE, "")))
        response.delete_cookie(COOKIE, samesite="Strict", httponly=True)

    def _known(self, key: str) -> Viewer:
        presented = key.encode()
        if self._all and hmac.compare_digest(presented, self._all.encode()):
            return Viewer(None, signed_in=True)
        if not self._clients:
            raise Unauthorized("Incorrect key.", code="inspector_key")
        client = self._recognize(key)
        return Viewer(str(client), signed_in=True, asks_as=client)


def _is_here(request: Request) -> bool:
    """Whether the request comes from this machine, and from no proxy that may bring somebody else's."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(request.remote_addr or "")


def _session(token: str) -> str:
    """The name of a session's record, which has the viewer's key: a withdrawn key then opens nothing."""
    return f"inspector/{hashlib.sha256(token.encode()).hexdigest()}"
