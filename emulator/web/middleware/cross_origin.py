"""Let web pages of ``cors_origins`` read responses (Fetch standard, "CORS protocol").

`browser_guard` decides which pages may send requests.
"""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request

from emulator.settings import Settings


def allow_origins(settings: Settings) -> Callable[[Response], Response]:
    """Return a function that adds the headers to a response, including a preflight's."""
    allowed = set(settings.cors_origins)

    def allow(response: Response) -> Response:
        origin = request.headers.get("origin", "")
        if origin and {origin, "*"} & allowed:
            response.headers["access-control-allow-origin"] = origin
            response.headers["access-control-allow-methods"] = "GET, POST, DELETE, OPTIONS"
            # "*" does not include authorization.
            response.headers["access-control-allow-headers"] = "authorization, content-type, *"
            response.headers["access-control-expose-headers"] = "*"
            response.headers["access-control-max-age"] = "600"
        response.headers.add("vary", "origin")
        return response

    return allow
