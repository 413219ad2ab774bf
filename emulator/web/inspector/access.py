"""Who may use the inspector, and whose requests they see.

With client keys, a client sees its own requests; ``inspector_key`` opens all. Without any key, the server
makes an ``inspector_key`` at its start and prints it as ``?token=``, as Jupyter Server does: the client's
address proves nothing, because a reverse proxy on this machine forwards the requests of everyone. A browser
presents its key once and gets a session, a document: the cookie holds a random token, never a
key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from flask import Request, Response

from emulator.core.errors import Unauthorized
from emulator.database import Database, Documents, database_failures
from emulator.settings.settings import Settings
from emulator.web.middleware.authorization import is_operators, presented_key

SESSION_SECONDS = 12 * 3600.0


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
        database: Database,
    ) -> None:
        """``recognize`` returns the client that has a key, or raises `Unauthorized`."""
        self._settings = settings
        self._recognize = recognize
        self._sessions: Documents[str] = Documents(
            database, "inspector", str, seconds=SESSION_SECONDS, max_bytes=2**20
        )

    def viewer(self, request: Request) -> Viewer:
        """Return who views the page. Raises `Unauthorized`."""
        if self._settings.inspector == "open":
            return Viewer(None)
        if key := presented_key(request.headers):
            return self._viewer_with(key)
        token = request.cookies.get(_cookie(request), "")
        session_key = None
        if token:
            with database_failures("Sessions of the inspector cannot be read"):
                session_key = self._sessions.get(_record_name(token))
        if session_key is None:
            raise Unauthorized("The inspector requires a key.", code="inspector_key")
        return self._viewer_with(session_key)

    def sign_in(self, request: Request, key: str, response: Response) -> None:
        """Give the browser a session. Raises `Unauthorized`."""
        self._viewer_with(key)
        token = secrets.token_urlsafe(32)
        with database_failures("The session cannot be stored"):
            self._sessions.put({_record_name(token): key})
        response.set_cookie(
            _cookie(request),
            token,
            max_age=int(SESSION_SECONDS),
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )

    def sign_out(self, request: Request, response: Response) -> None:
        with database_failures("The session cannot be ended"):
            self._sessions.delete([_record_name(request.cookies.get(_cookie(request), ""))])
        response.delete_cookie(_cookie(request), samesite="Strict", httponly=True)

    def _viewer_with(self, key: str) -> Viewer:
        if is_operators(key, self._settings):
            return Viewer(None, signed_in=True)
        if not self._settings.wants_keys:
            raise Unauthorized("Incorrect key.", code="inspector_key")
        client = self._recognize(key)
        return Viewer(str(client), signed_in=True, sends_as=client)


def _cookie(request: Request) -> str:
    """Return the cookie's name. Browsers share cookies between the ports of a host."""
    port = re.search(r":(\d+)$", request.host, re.ASCII)
    return f"emulator_inspector_{port[1]}" if port else "emulator_inspector"


def _record_name(token: str) -> str:
    """Return the name of a session's record. It holds the viewer's key: a revoked key opens nothing."""
    return hashlib.sha256(token.encode()).hexdigest()
