"""URLs of upstreams and addresses of this proxy: what makes sense, and whether they are the same place."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from ipaddress import ip_address
from urllib.parse import urlsplit

_ENDPOINT = re.compile(r"/(?:chat/completions|completions|responses|messages|models)/*$")
"""Ends of URLs that people copy from an API's reference; a base URL stops before them."""


def base_url(text: str) -> str:
    """``text`` as a base URL: no endpoint and no slash at its end. Raises ValueError with what is wrong."""
    url = text.strip()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f"http://{url}" if url and "://" not in url else "http://localhost:11434/v1"
        raise ValueError(f"{url!r} is no URL: begin it with http:// or https://, as in {shown}")
    _ = parts.port  # raises ValueError
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r}: a base URL ends with its path, usually /v1")
    return _ENDPOINT.sub("", url).rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_own(url: str, host: str, port: int) -> bool:
    """Whether ``url`` leads to who listens on ``host`` and ``port`` of this machine."""
    parts = urlsplit(url)
    if port == 0 or port != (parts.port or {"http": 80, "https": 443}.get(parts.scheme)):
        return False
    heard = _addresses(host)
    everywhere = any(ip_address(one).is_unspecified for one in heard)
    # A connection to the unspecified address (0.0.0.0) is one to loopback.
    asked = {
        "127.0.0.1" if ip_address(one).is_unspecified else one
        for one in _addresses(parts.hostname or "")
    }
    return bool(asked & heard) or (everywhere and any(_is_of_this_machine(one) for one in asked))


def reachable_host(host: str) -> str:
    """``host`` as a URL has it for clients on this machine: 0.0.0.0 is for listening only."""
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


def _is_of_this_machine(address: str) -> bool:
    """Only an address of its own can a machine bind a socket to."""
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True
