"""A POST to a route of this application from within another request.

It passes the checks, limits and records of its route, but not the WSGI middleware, which the other request
has passed. Run it in a `contextvars.Context` of its own: Flask's ``g`` of the other request would be shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING

from flask import Flask, current_app

from emulator.core import client_disconnect
from emulator.web.middleware.in_flight import RequestInFlight, current
from emulator.web.middleware.response_body import ClosingBody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LEFT_OUT = ("werkzeug.request", "flask.", "HTTP_UPGRADE", "HTTP_CONNECTION", "HTTP_SEC_WEBSOCKET")


class InnerPost:
    """Made in the context of the other request; `application` runs in a context of its own."""

    def __init__(self, body: bytes, path: str = "", client: str | None = None) -> None:
        """``path`` is by default the path and query of the other request, ``client`` its client."""
        outer = current.get()
        self._client = outer.client if client is None else client
        self._bodies = outer.bodies
        self._app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 (Flask documents it)
        environ = {n: v for n, v in outer.request.environ.items() if not n.startswith(_LEFT_OUT)}
        self.environ: WSGIEnvironment = {
            **environ,
            "REQUEST_METHOD": "POST",
            "PATH_INFO": path or environ["PATH_INFO"],
            "QUERY_STRING": "" if path else environ.get("QUERY_STRING", ""),
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": BytesIO(body),
        }

    @property
    def application(self) -> WSGIApplication:
        """To be called with ``environ``, once."""
        return self._answer

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        flight = RequestInFlight(self._bodies, client_disconnect.current.get(), self._client)
        flight.attach(environ)
        try:
            return ClosingBody(Flask.wsgi_app(self._app, environ, start_response), flight.close)
        except BaseException:
            flight.close()
            raise
