"""Validate and show URLs of the settings, and detect one that leads back to this proxy."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from emulator.core.controls import CONTROLS

_ENDPOINT = re.compile(r"/(?:chat/completions|completions|responses|messages|models)/*$")
"""Endpoint paths that people copy from an API reference; a base URL ends before them."""
_NOT_IN_URLS = re.compile(rf"[{CONTROLS} \"'<>\\^`{{|}}]")
"""RFC 3986's list and the single quote, which shells and files leave; and characters that nobody sees."""
_SCHEME = re.compile(r"(?:\w+:/|https?/)?/*")
"""What was probably meant as http://."""

HIDDEN = "[hidden]"
"""Is shown instead of a secret."""


def base_url(text: str) -> str:
    """Return ``text`` as a base URL, without an endpoint or a slash at its end. Raises ValueError."""
    url = text.strip()
    shown = repr(shown_url(url))
    if wrong := _NOT_IN_URLS.search(url):
        raise ValueError(f"{shown} is not a URL: it contains {wrong[0]!r}")
    parts = parse(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        meant = shown_url(f"http://{_SCHEME.sub('', url, 1) or 'localhost:11434'}")
        if "/" not in meant.removeprefix("http://").rstrip("/"):
            meant = f"{meant.rstrip('/')}/v1"
        raise ValueError(f"{shown} is not a URL: start with http:// or https://, as in {meant}")
    if parts.query or parts.fragment:
        raise ValueError(f"{shown}: a base URL ends with its path, usually /v1")
    return _ENDPOINT.sub("", url).rstrip("/")


def parse(url: str) -> SplitResult:
    """Return the parts of ``url``. Raises ValueError, which unlike `urlsplit`'s quotes nothing of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("its host is malformed") from None
    try:
        _ = parts.port
    except ValueError:
        advice = "; write / ? # @ in a password as %2F %3F %23 %40" * ("@" in url)
        raise ValueError(f"its port is not a number up to 65535{advice}") from None
    return parts


def userinfo(url: str) -> str:
    """Return the name and password in ``url``, or "". All before the last @ may belong to them: people do not
    escape passwords."""
    return (url.partition("://")[2] or url).rpartition("@")[0]


def shown_url(url: str) -> str:
    """Return what others may see of ``url``: no name, no password, no query."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    secret, _, address = rest.rpartition("@")
    if re.search(r"[/?#]", secret):  # a password that is not escaped, or a path with an @
        address = f"{HIDDEN}@{address}"
    address, question, _ = address.partition("?")
    return f"{scheme}{mark}{address}{question}{HIDDEN if question else ''}"


def without_userinfo(url: str) -> str:
    """Return ``url`` without the name and password in it, as it is requested."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def split_url(url: str) -> SplitResult:
    """Return the parts of ``url``, which anyone may have written; they are empty if it is malformed."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def missing_path(url: str) -> str:
    """Return a hint if ``url``, a base URL or an endpoint of it, may lack its /v1; or ""."""
    base = _ENDPOINT.sub("", url).rstrip("/")
    return "" if urlsplit(base).path else f"did you mean {base}/v1?"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what a key is sent to."""
    parts = urlsplit(url.strip())
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, parts.hostname or "", port or {"http": 80, "https": 443}.get(parts.scheme)


def is_own(url: str, host: str, port: int) -> bool:
    """Return True if ``url`` names this machine and the port of a server that listens on ``host``.

    `emulator.web.middleware.loop_guard` notices every other name of the server at the first request.
    """
    parts = urlsplit(url)
    if port == 0 or port != (parts.port or {"http": 80, "https": 443}.get(parts.scheme)):
        return False
    target = reachable_host(parts.hostname or "").strip("[]")
    serves_all = reachable_host(host).strip("[]") != host
    return target == host or (is_loopback(target) and (serves_all or "localhost" in (target, host)))


def reachable_host(host: str) -> str:
    """Return ``host`` as clients on this machine write it in a URL. 0.0.0.0 works only for listening."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host
