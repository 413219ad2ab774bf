"""Find the model that a passed-on body names, and write the same fields with another. Knows no upstream.

A body is parsed once. `BodyModel.written` writes what was parsed, so that the upstream cannot read another
model than the one that was checked: its parser may take the first of two fields where this one takes the
last, or understand a way of writing a field's name that this one does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.errors import MessageError
from email.message import Message
from email.parser import HeaderParser
from email.utils import collapse_rfc2231_value

from urllib3.fields import RequestField
from urllib3.filepost import encode_multipart_formdata

from emulator.core import json_codec
from emulator.core.controls import CONTROLS
from emulator.core.errors import BadRequest

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_UNSAFE = re.compile(rf'[{CONTROLS}\\";=%]')
_NAME = re.compile(rf'[^{CONTROLS}\\";=%]{{1,200}}')
"""No character that servers unescape, decode or split at in different ways."""
_SEVERAL = re.compile(r"\s*(?:multipart|message)/", re.IGNORECASE)
_MAX_NAME = 512
_MAX_FIELDS = 1000


@dataclass(frozen=True)
class FormField:
    name: str
    content: bytes
    filename: str | None
    content_type: str | None


@dataclass(frozen=True)
class BodyModel:
    """A passed-on body, parsed. Without fields it is neither a JSON object nor a readable form."""

    name: str | None = None
    """The model. None if the body names none, or a form names several."""
    json_fields: Mapping[str, object] = field(default_factory=dict)
    form_fields: tuple[FormField, ...] = ()
    is_unreadable: bool = False
    """It may be JSON to another parser."""

    def written(self, model: str | None) -> tuple[bytes, str]:
        """The parsed fields with ``model`` as the model, if any, and their content type. Raises
        `BadRequest`."""
        if self.json_fields:
            fields = {**self.json_fields, "model": model} if model else self.json_fields
            try:
                return json_codec.dumps(fields), "application/json"
            except TypeError as error:
                raise BadRequest("The body is nested too deeply.") from error
        parts = []
        for one in self.form_fields:
            is_model = one.name == "model"
            part = RequestField(
                one.name, model if model and is_model else one.content, one.filename
            )
            part.make_multipart(content_type=one.content_type)
            parts.append(part)
        return encode_multipart_formdata(parts)


def find_model(body: bytes, content_type: str) -> BodyModel:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return _form_model(_form_fields(body, content_type))
    if "json" not in kind:
        return BodyModel()
    try:
        fields = json_codec.loads(body)
    except json_codec.NotJSON:
        return BodyModel(is_unreadable=True)
    if not isinstance(fields, dict):
        return BodyModel()
    model = fields.get("model")
    return BodyModel(model if isinstance(model, str) and model else None, fields)


def _form_model(fields: tuple[FormField, ...]) -> BodyModel:
    values = [one.content for one in fields if one.name == "model" and one.filename is None]
    if len(values) != 1 or len(values[0]) > _MAX_NAME:
        return BodyModel(form_fields=fields)
    return BodyModel(values[0].decode(errors="replace").strip() or None, form_fields=fields)


def _form_fields(body: bytes, content_type: str) -> tuple[FormField, ...]:
    """The fields of a multipart form (RFC 7578), or none if a part is not one field."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return ()
    delimiter = b"\r\n--" + boundary[1].encode()
    parts = (b"\r\n" + body).split(delimiter, _MAX_FIELDS + 2)[1:]
    fields: list[FormField] = []
    for part in parts:
        if part.startswith(b"--"):
            return tuple(fields)
        head, separator, content = part.lstrip(b" \t").partition(b"\r\n\r\n")
        one = _form_field(head, content) if separator else None
        if one is None:
            return ()
        fields.append(one)
    return ()  # the end is missing, or there are too many


def _form_field(head: bytes, content: bytes) -> FormField | None:
    try:
        headers = HeaderParser().parsestr(head.removeprefix(b"\r\n").decode(errors="replace"))
        name, filename = _parameter(headers, "name"), _parameter(headers, "filename")
    except (MessageError, ValueError):
        return None
    content_type = headers.get("content-type")
    # A part of several parts could hold fields that are not seen here.
    if not _NAME.fullmatch(name or "") or _SEVERAL.match(content_type or ""):
        return None
    return FormField(name or "", content, filename and _UNSAFE.sub("_", filename), content_type)


def _parameter(headers: Message, name: str) -> str | None:
    """A parameter of Content-Disposition in any way of writing it (RFC 2231, RFC 8187)."""
    value = headers.get_param(name, header="content-disposition")
    return None if value is None else collapse_rfc2231_value(value, "strict")
