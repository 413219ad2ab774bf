"""Which model a body of any type names, and the same body naming another. Knows no upstream."""

from __future__ import annotations

import re
from collections.abc import Collection

import orjson

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_PART = re.compile(rb'form-data;[^\r\n]*\bname="?model"?(?=[;\r\n ])', re.IGNORECASE)
_MAX_NAME = 512


def model_of(body: bytes, content_type: str) -> str | None:
    """The ``model`` of a JSON object or of a multipart form; None where none is named."""
    if "json" in content_type.lower():
        try:
            named = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None  # that is for the upstream to tell
        model = named.get("model") if isinstance(named, dict) else None
        return model if isinstance(model, str) and model else None
    place = _place(body, content_type)
    if place is None:
        return None
    return body[place[0] : place[1]].decode(errors="replace").strip() or None


def fields_of(body: bytes, content_type: str) -> Collection[str]:
    """The names of a JSON object's fields; none of what is no JSON object."""
    if "json" not in content_type.lower():
        return ()
    try:
        named = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ()
    return named.keys() if isinstance(named, dict) else ()


def with_model(body: bytes, content_type: str, model: str) -> bytes:
    """``body``, in which `model_of` has found a model, with ``model`` in its place."""
    if "json" in content_type.lower():
        return orjson.dumps({**orjson.loads(body), "model": model})
    place = _place(body, content_type)
    if place is None:
        return body
    # It is to stay the content of one part.
    written = re.sub(r"[\r\n]", " ", model).encode()
    return body[: place[0]] + written + body[place[1] :]


def _place(body: bytes, content_type: str) -> tuple[int, int] | None:
    """Where in a multipart form (RFC 7578) the value of its field ``model`` stands."""
    if "multipart/form-data" not in content_type.lower():
        return None
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return None
    mark = b"--" + boundary[1].encode()
    at = body.find(mark)
    while at >= 0:
        start = at + len(mark)
        if body[start : start + 2] == b"--":
            return None
        head_end = body.find(b"\r\n\r\n", start, start + 8192)
        following = body.find(b"\r\n" + mark, head_end if head_end >= 0 else start)
        if head_end >= 0 and _PART.search(body, start, head_end + 2):
            end = following if following >= 0 else len(body)
            return (head_end + 4, end) if end - head_end - 4 <= _MAX_NAME else None
        at = following + 2 if following >= 0 else -1
    return None
