"""Requests that are not chats (embeddings, speech, images): which of them may be sent, and sent again.

`OpenAIUpstream.pass_on` sends them. Bodies are bytes of any type. Knows nothing of chats, models or Flask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from emulator.core.errors import BadRequest, UpstreamFailed

SENT_HEADERS = ("accept", "content-type")
RETURNED_HEADERS = (
    "cache-control",
    "content-disposition",
    "content-type",
    "openai-",
    "retry-after",
    "x-accel-buffering",
    "x-ratelimit-",
)
"""Prefixes."""

# Only a plain path below the upstream's base URL: `..` would leave it, with the operator's key.
_PATH = re.compile(r"[\w.~:@+,=-]+(?:/[\w.~:@+,=-]+)*", re.ASCII)
_DOTS = re.compile(r"(?:^|/)\.\.?(?:/|$)")


@dataclass(frozen=True)
class PassedOnRequest:
    method: str
    path: str
    """Below the upstream's base URL."""
    query: bytes
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def url(self, base_url: str, operator_query: Mapping[str, str]) -> str:
        """The URL at the upstream; the operator's parameters replace the client's. Raises `BadRequest`."""
        if not _PATH.fullmatch(self.path) or _DOTS.search(self.path):
            raise BadRequest("This path cannot be passed on to the upstream.")
        query = quote(self.query, safe="%/:?@!$&'()*+,;=~[]")
        if operator_query:
            own = parse_qsl(query, keep_blank_values=True)
            others = [(name, value) for name, value in own if name not in operator_query]
            query = urlencode([*others, *operator_query.items()])
        return f"{base_url}/{self.path}" + (f"?{query}" if query else "")

    def may_repeat(self, error: UpstreamFailed) -> bool:
        """Return True if it may be sent again: a POST only if the upstream certainly did not act on it.

        That is so without a connection, and if the upstream says when to retry (RFC 9110, 9.2.2 and 10.2.3).
        """
        if self.method == "GET" or error.code == "upstream_down":
            return True
        advised = not {"retry-after", "retry-after-ms"}.isdisjoint(error.headers)
        return error.status in (429, 503) and advised
