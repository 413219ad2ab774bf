"""Validate upstream URLs and detect one that leads back to this proxy."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from ipaddress import ip_address
from urllib.parse import urlsplit

_ENDPOINT = re.compile(r"/(?:chat/completions|completions|responses|messages|models)/*$")
"""Endpoint paths that people copy from an API reference; a base URL ends before them."""


def base_url(text: str) -> str:
    """Return ``text`` as a base URL, without an endpoint or a slash at its end. Raises ValueError."""
    url = text.strip()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f"http://{url}" if url and "://" not in url else "http://localhost:11434/v1"
        raise ValueError(f"{url!r} is not a URL: start with http:// or https://, as in {shown}")
    _ = parts.port  # raises ValueError
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r}: a base URL ends with its path, usually /v1")
    return _ENDPOINT.sub("", url).rstrip("/")


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_own(url: str, host: str, port: int) -> bool:
    """Return True if ``url`` leads to a server that listens on ``host`` and ``port`` of this machine."""
    parts = urlsplit(url)
    if port == 0 or port != (parts.port or {"http": 80, "https": 443}.get(parts.scheme)):
        return False
    listening = _addresses(host)
    on_all_addresses = any(ip_address(address).is_unspecified for address in listening)
    # A connection to the unspecified address (0.0.0.0) goes to loopback.
    targets = {
        "127.0.0.1" if ip_address(address).is_unspecified else address
        for address in _addresses(parts.hostname or "")
    }
    return bool(targets & listening) or (on_all_addresses and any(map(_is_local, targets)))


def reachable_host(host: str) -> str:
    """Return ``host`` as clients on this machine write it in a URL. 0.0.0.0 works only for listening."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]).split("%")[0] for *_, address in found}


def _is_local(address: str) -> bool:
    """Return True if ``address`` belongs to this machine: a socket can be bound only to local addresses."""
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
