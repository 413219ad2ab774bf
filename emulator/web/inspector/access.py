"""Who may use the inspector, and whose requests they see.

With client keys, a client sees its own requests; ``inspector_key`` opens all. Without any key, only this
machine has access. A browser presents its key once and gets a session, a record of `SharedState`: the cookie
holds a random token, never a key.
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
    client: str | None
    """The client whose requests are shown; None for those of all clients."""
    signed_in: bool = False
    sends_as: str = ""
    """The client in whose name requests of the playground are sent; carries the grant of its key."""


class Access:
    """Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        recognize: Callable[[str], str],
        state: SharedState,
    ) -> None:
        """``recognize`` returns the client that has a key, or raises `Unauthorized`."""
        self._has_client_keys = settings.wants_keys
        self._recognize = recognize
        self._inspector_key = settings.inspector_key.get_secret_value()
        self._local = is_loopback(settings.host)
        self._state = state

    def viewer(self, request: Request) -> Viewer:
        """Return who views the page.

        Raises `Unauthorized` if a key is missing, `Forbidden` if no key could help.
        """
        if not (self._has_client_keys or self._inspector_key):
            if not self._local or not _is_from_this_machine(request):
                raise Forbidden(
                    "Without a key the inspector is open only to this machine. Set inspector_key "
                    "(--inspector-key) to use it from elsewhere.",
                    code="inspector_local",
                )
            return Viewer(None)
        if key := presented_key():
            return self._viewer_with(key)
        token = request.cookies.get(COOKIE, "")
        session_key = self._state.get(_record_name(token)) if token else None
        if session_key is None:
            raise Unauthorized("The inspector requires a key.", code="inspector_key")
        return self._viewer_with(session_key)

    def sign_in(self, request: Request, key: str, response: Response) -> None:
        """Give the browser a session. Raises `Unauthorized`."""
        self._viewer_with(key)
        token = secrets.token_urlsafe(32)
        self._state.put(_record_name(token), key, SESSION_SECONDS)
        response.set_cookie(
            COOKIE,
            token,
            max_age=int(SESSION_SECONDS),
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )

    def sign_out(self, request: Request, response: Response) -> None:
        self._state.delete(_record_name(request.cookies.get(COOKIE, "")))
        response.delete_cookie(COOKIE, samesite="Strict", httponly=True)

    def _viewer_with(self, key: str) -> Viewer:
        presented = key.encode()
        if self._inspector_key and hmac.compare_digest(presented, self._inspector_key.encode()):
            return Viewer(None, signed_in=True)
        if not self._has_client_keys:
            raise Unauthorized("Incorrect key.", code="inspector_key")
        client = self._recognize(key)
        return Viewer(str(client), signed_in=True, sends_as=client)


def _is_from_this_machine(request: Request) -> bool:
    """Return True if the request comes from this machine, and not through a forwarding proxy."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(request.remote_addr or "")


def _record_name(token: str) -> str:
    """Return the name of a session's record. It holds the viewer's key: a revoked key opens nothing."""
    return f"inspector/{hashlib.sha256(token.encode()).hexdigest()}"
