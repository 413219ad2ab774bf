"""Requests without the credentials of the MCP servers that they name: what may be stored, logged and shown.

As at OpenAI, a URL is shown without its path, which may contain a key.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from emulator.core import json_codec

HIDDEN = "<redacted>"


def without_credentials(server: dict[str, Any]) -> dict[str, Any]:
    """Return an item of type ``mcp``, or one of ``mcp_servers`` (Messages), without what may be secret."""
    shown = {name: value for name, value in server.items() if name not in _SECRET}
    for name in ("server_url", "url"):
        if isinstance(url := shown.get(name), str):
            shown[name] = _origin(url)
    return shown


_SECRET = ("authorization", "authorization_token", "headers")


def body_without_credentials(body: bytes) -> bytes:
    """Return the body of any request without credentials of MCP servers; most bodies stay unchanged. Of one
    that cannot be read and written again nothing is left."""
    if b'"mcp' not in body:
        return body
    try:
        request = json_codec.loads(body)
    except json_codec.NotJSON:
        return b""
    if not isinstance(request, dict):
        return body
    shown = dict(request)
    for name, kind in (("tools", "mcp"), ("mcp_servers", "url")):
        if isinstance(servers := request.get(name), list):
            shown[name] = [
                without_credentials(one)
                if isinstance(one, dict) and one.get("type") == kind
                else one
                for one in servers
            ]
    try:
        return body if shown == request else json_codec.dumps(shown)
    except TypeError:  # nested too deeply
        return b""


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return HIDDEN
    hidden = parts.path.strip("/") or parts.query or parts.fragment
    return f"{parts.scheme}://{host}/{HIDDEN if hidden else ''}"
