"""What an upstream's refusal says, whatever the shape of its error; which headers are told; counting them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from urllib.parse import urlsplit

from emulator import metrics
from emulator.client_disconnect import has_disconnected
from emulator.errors import UpstreamFailed

_MAX_HEADERS = 32
_KINDS = {
    401: "unauthorized",
    403: "unauthorized",
    408: "timeout",
    429: "rate_limited",
    504: "timeout",
}


@contextmanager
def counting(upstream: str) -> Iterator[None]:
    """`count` an `UpstreamFailed` that the block raises."""
    try:
        yield
    except UpstreamFailed as error:
        count(upstream, error)
        raise


def count(upstream: str, error: UpstreamFailed, kind: str = "") -> None:
    """Count it, unless it failed because its client has left."""
    if not has_disconnected():
        metrics.UPSTREAM_ERRORS.labels(upstream, kind or _kind(error)).inc()


def _kind(error: UpstreamFailed) -> str:
    if error.code == "upstream_down":
        return "unreachable"
    return _KINDS.get(error.status, "refused" if error.status < 500 else "failed")


def headers_told(headers: Mapping[str, str], beginnings: tuple[str, ...]) -> dict[str, str]:
    """The headers whose names begin so, in lower case; not without end."""
    found = {name.lower(): value for name, value in headers.items()}
    told = ((name, value) for name, value in found.items() if name.startswith(beginnings))
    return dict(islice(told, _MAX_HEADERS))


def message_of(error: object) -> str:
    """What an error says in OpenAI's shape, in FastAPI's ``detail`` or as a plain text; or ""."""
    if isinstance(error, str):
        return error
    if not isinstance(error, Mapping):
        return ""
    for name in ("message", "detail", "error"):
        if isinstance(said := error.get(name), str) and said:
            return said
    problems = error.get("detail")
    if isinstance(problems, list):  # of pydantic: one for each place
        return "; ".join(str(one.get("msg")) for one in problems[:8] if isinstance(one, Mapping))
    return ""


def shown(url: str) -> str:
    """``url`` without a name and password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
