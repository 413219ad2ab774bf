"""Protect a proxy on a user's machine from web pages in the user's browser.

A browser sends a page's requests to any address, including loopback. A key stops them; without a key these
checks do:

* The Host of a request must be this machine. Otherwise a page could bind its own name to 127.0.0.1 and
  share the proxy's origin (DNS rebinding).
* A request that a browser sends for a page must come from the proxy's own pages or from an origin of
  ``cors_origins``. Browsers send this in headers that no page can set (Fetch Metadata Request Headers).
  Following a link is allowed, as in https://web.dev/articles/fetch-metadata: the page with the link cannot
  read the response.
* A body must be declared as JSON (or as a form, for uploads): a page may send other types without a
  CORS preflight (Fetch standard, "CORS-safelisted request-header").

`allow_origins` lets the pages of ``cors_origins`` read responses (Fetch standard, "CORS protocol").

Jupyter Server does the same (its settings allow_origin and allow_remote_access).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import Request, Response

from emulator.core.addresses import is_loopback, split_url
from emulator.core.errors import Forbidden, UnsupportedMediaType
from emulator.settings.settings import Settings

# Our own files, and endpoints of upstreams that accept forms: speech, pictures.
_UPLOADS = re.compile(r"/files(?:/upload)?$|/(?:audio|images)/")
_MAX_HOST_CHARS = 300
"""More than a name can have (RFC 1035)."""
_NO_BODY = {"GET", "HEAD", "OPTIONS", "DELETE"}
_OWN_SITES = {"same-origin", "none"}  # "none": typed or from a bookmark


def guard(settings: Settings) -> Callable[[Request], None]:
    """Return the check of a request; it raises `Forbidden` or `UnsupportedMediaType`."""
    origins = set(settings.cors_origins)
    is_ours = lru_cache(maxsize=64)(partial(_is_ours, settings=settings))

    def check(request: Request) -> None:
        host = request.headers.get("host")
        if (
            not settings.wants_keys
            and host is not None
            and not (len(host) <= _MAX_HOST_CHARS and is_ours(host))
        ):
            raise Forbidden(
                f"Host {host[:200]!r} is not a name of this proxy: add it to the setting allowed_hosts "
                "(--allowed-hosts) if it is, or set client_keys.",
                code="host_not_allowed",
            )
        if "*" not in origins and not _is_own_page(request, origins):
            raise Forbidden(
                f"Pages of {_page(request)[:200]!r} may not call this proxy from a browser: add the origin "
                "to the setting cors_origins (--cors-origins) if they should.",
                code="origin_not_allowed",
            )
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedMediaType(
                "The body is compressed: send it without content-encoding.",
                code="unsupported_media_type",
            )
        if not _has_allowed_type(request):
            raise UnsupportedMediaType(
                f"Content type {request.mimetype[:200]!r}: send the body as JSON, with the header "
                "'content-type: application/json' (curl: -H 'content-type: application/json'); "
                "uploads are multipart/form-data.",
                code="unsupported_media_type",
            )

    return check


def _is_ours(host: str, settings: Settings) -> bool:
    name = _name(host)
    if name is None:
        return False
    if is_loopback(name) or name.endswith(".localhost"):
        return True
    bound = settings.host.lower()
    if name == bound or (_is_every_address(bound) and _is_address(name)):
        return True
    return any(
        name.endswith(allowed[1:]) if allowed.startswith("*") else name == allowed
        for allowed in map(str.lower, settings.allowed_hosts)
    )


def _name(host: str) -> str | None:
    """Return the name or address in a Host header, or None if the header is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    if parts.netloc != host or "@" in host or "," in host or " " in host:
        return None
    return (parts.hostname or "").removesuffix(".") or None


def _is_every_address(host: str) -> bool:
    """Return True if a server on ``host`` listens on every address of the machine."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        return not ip_address(name).is_unspecified
    except ValueError:
        return False


def _page(request: Request) -> str:
    """Return the origin of the page that sent this request, or "" if the browser does not say."""
    origin = request.headers.get("origin")
    if origin is not None:
        return origin
    # A page can omit its Referer but not forge it.
    referer = split_url(request.headers.get("referer", ""))
    return f"{referer.scheme}://{referer.netloc}" if referer.netloc else ""


def _is_own_page(request: Request, origins: set[str]) -> bool:
    """Return True if no page sent this request, or one of the proxy or of ``origins`` did."""
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site in _OWN_SITES or (origins and _page(request) in origins):
        return True
    if site is None:
        return origin is None or split_url(origin).netloc.lower() == headers.get("host", "").lower()
    followed = ("navigate", "document")
    fetched = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return origin is None and request.method in ("GET", "HEAD") and fetched == followed


def _has_allowed_type(request: Request) -> bool:
    """Return True if there is no body, or its type needs a CORS preflight."""
    has_body = bool(request.content_length) or "transfer-encoding" in request.headers
    if request.method in _NO_BODY or not has_body or request.is_json:
        return True
    return request.mimetype == "multipart/form-data" and bool(_UPLOADS.search(request.path))


def allow_origins(settings: Settings) -> Callable[[Request, Response], None]:
    """Return a function that adds the headers to a response, including a preflight's."""
    allowed = set(settings.cors_origins)

    def allow(request: Request, response: Response) -> None:
        origin = request.headers.get("origin", "")
        if origin and {origin, "*"} & allowed:
            response.headers["access-control-allow-origin"] = origin
            response.headers["access-control-allow-methods"] = "GET, POST, DELETE, OPTIONS"
            # "*" does not include authorization.
            response.headers["access-control-allow-headers"] = "authorization, content-type, *"
            response.headers["access-control-expose-headers"] = "*"
            response.headers["access-control-max-age"] = "600"
        response.headers.add("vary", "origin")

    return allow
