"""A POST to a route of this application from within another request.

It passes the checks, limits and records of its route, but not the WSGI middleware, which the other request
has passed. Run it in a `contextvars.Context` of its own: Flask's ``g`` of the other request would be shared.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from flask import Flask, current_app, request

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

CLIENT = "emulator.client"
"""Key of an environ: the client, whose key was checked before. No header of a request can set it."""
_LEFT_OUT = ("werkzeug.request", "flask.", "HTTP_UPGRADE", "HTTP_CONNECTION", "HTTP_SEC_WEBSOCKET")


def environ_of_post(body: bytes, path: str = "") -> WSGIEnvironment:
    """The current request as a POST of ``body`` to ``path`` (default: its own path and query)."""
    environ = {n: v for n, v in request.environ.items() if not n.startswith(_LEFT_OUT)}
    return {
        **environ,
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path or environ["PATH_INFO"],
        "QUERY_STRING": "" if path else environ.get("QUERY_STRING", ""),
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }


def inner_application() -> WSGIApplication:
    app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 (Flask documents it)
    return partial(Flask.wsgi_app, app)
