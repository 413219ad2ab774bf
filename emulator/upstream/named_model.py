"""Find the model that a passed-on body names, and write the same body with another. Knows no upstream."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

import orjson

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_PART = re.compile(rb'form-data;[^\r\n]*\bname="?model"?(?=[;\r\n ])', re.IGNORECASE)
_MAX_NAME = 512


@dataclass(frozen=True)
class BodyModel:
    """Where a body names its model."""

    body: bytes
    name: str | None = None
    """None if the body names no model, or is neither a JSON object nor a multipart form."""
    json_fields: dict[str, object] = field(default_factory=dict)
    form_range: tuple[int, int] | None = None
    """Start and end of the value in a multipart form."""

    @property
    def field_names(self) -> Collection[str]:
        """The fields of a JSON object; empty for other bodies."""
        return self.json_fields.keys()

    def replaced_by(self, model: str) -> bytes:
        """The body with ``model`` instead of its own."""
        if self.form_range is None:
            return orjson.dumps({**self.json_fields, "model": model})
        start, end = self.form_range
        # A line break would end the part.
        written = re.sub(r"[\r\n]", " ", model).encode()
        return self.body[:start] + written + self.body[end:]


def find_model(body: bytes, content_type: str) -> BodyModel:
    if "json" in content_type.lower():
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError:
            return BodyModel(body)  # the upstream refuses it
        if not isinstance(fields, dict):
            return BodyModel(body)
        model = fields.get("model")
        return BodyModel(body, model if isinstance(model, str) and model else None, fields)
    place = _form_range(body, content_type)
    if place is None:
        return BodyModel(body)
    name = body[slice(*place)].decode(errors="replace").strip()
    return BodyModel(body, name or None, form_range=place)


def _form_range(body: bytes, content_type: str) -> tuple[int, int] | None:
    """The range of the value of the field ``model`` in a multipart form (RFC 7578)."""
    if "multipart/form-data" not in content_type.lower():
        return None
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return None
    delimiter = b"--" + boundary[1].encode()
    position = body.find(delimiter)
    while position >= 0:
        start = position + len(delimiter)
        if body[start : start + 2] == b"--":
            return None
        head_end = body.find(b"\r\n\r\n", start, start + 8192)
        following = body.find(b"\r\n" + delimiter, head_end if head_end >= 0 else start)
        if head_end >= 0 and _PART.search(body, start, head_end + 2):
            end = following if following >= 0 else len(body)
            return (head_end + 4, end) if end - head_end - 4 <= _MAX_NAME else None
        position = following + 2 if following >= 0 else -1
    return None
