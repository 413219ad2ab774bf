"""Pass all other paths to the upstream, as far as the setting ``pass_through`` allows."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from flask import Blueprint, Response, current_app, request
from werkzeug.exceptions import HTTPException

from emulator.conversation.answer_request import Omitted
from emulator.core.errors import MethodNotAllowed, NotFound
from emulator.settings.settings import Settings
from emulator.upstream.pass_through import PassedOnRequest
from emulator.upstream.upstreams import Upstreams
from emulator.web.middleware import doors
from emulator.web.middleware.in_flight import current
from emulator.web.routes.replies import client, with_omitted


def add_routes(
    api: Blueprint, upstreams: Upstreams, settings: Settings, record: Callable[[], None]
) -> None:
    """Add the route for every path that no other route serves; call it last.

    ``record`` records the current request.
    """

    @api.route("/<path:rest>", methods=["GET", "POST"])
    def pass_on(rest: str) -> Response:
        if method := _other_method():
            raise MethodNotAllowed(f"{request.method} {request.path}: use {method}.")
        first = rest.partition("/")[0]
        passed = any(fnmatchcase(rest, pattern) for pattern in settings.pass_through)
        # An upstream's files are not those of this proxy's clients.
        if first in doors.SERVED or doors.is_wrong(rest) or not passed:
            raise NotFound(f"{request.method} {request.path}: {doors.advice(request.path)}")
        record()
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = current.get().body if request.method == "POST" else b""
        response = upstreams.pass_on(
            PassedOnRequest(request.method, rest, request.query_string, headers, body), client()
        )
        reply = Response(response.body, response.status, [*response.headers.items()])
        return with_omitted(reply, Omitted(names=response.ignored))


def _other_method() -> str:
    """Return a method for which one of our routes has this path, or ""."""
    routes = current_app.url_map.bind("")
    for method in ("GET", "POST", "DELETE"):
        try:
            endpoint, _ = routes.match(request.path, method=method)
        except HTTPException:
            continue
        if not endpoint.endswith(".pass_on"):
            return method
    return ""
