"""Which web pages may read answers (Fetch standard, "CORS protocol"); `browser_guard` says who may ask."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request

from emulator.settings import Settings


def allow_origins(settings: Settings) -> Callable[[Response], Response]:
    """What is added to each response, a preflight's too."""
    allowed = set(settings.cors_origins)

    def allow(response: Response) -> Response:
        origin = request.headers.get("origin", "")
        if origin and {origin, "*"} & allowed:
            response.headers["access-control-allow-origin"] = origin
            response.headers["access-control-allow-methods"] = "GET, POST, DELETE, OPTIONS"
            # A * does not stand for authorization.
            response.headers["access-control-allow-headers"] = "authorization, content-type, *"
            response.headers["access-control-expose-headers"] = "*"
            response.headers["access-control-max-age"] = "600"
        response.headers.add("vary", "origin")
        return response

    return allow
