"""Emulate `response_format`: describe it in the prompt, parse the answer, and check it against its schema.

The schema is handled as the parameters of a single tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from emulator.core import json_codec
from emulator.core.errors import BadRequest, moved_place, unsupported_type
from emulator.reading.loose_json import Value, objects
from emulator.reading.statements import Unreadable
from emulator.tools.toolset import BindError, SchemaError, Toolset

_NAME = "answer"
_PLACE = "response_format"


def last_object(found: Sequence[Value], check: Callable[[Any], object]) -> Value:
    """The last object for which ``check`` raises no `BindError`, else the last one: models draft, too."""
    for each in reversed(found):
        with suppress(BindError):
            check(each.value)
            return each
    return found[-1]


class FormatMismatch(Exception):
    """The text does not match the format; ``str()`` explains why to the model."""


@dataclass(frozen=True)
class AnswerFormat:
    """``json_object`` (no schema) or ``json_schema``."""

    toolset: Toolset | None = None
    schema: str = ""

    @classmethod
    def parse(cls, response_format: Mapping[str, Any] | None) -> AnswerFormat | None:
        """None for free text. Raises `BadRequest` naming the place."""
        kind = (response_format or {"type": "text"}).get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return cls()
        if kind != "json_schema":
            raise unsupported_type(kind, f"{_PLACE}.type", "text, json_object, json_schema")
        described = (response_format or {}).get("json_schema")
        if not isinstance(described, Mapping):
            place = f"{_PLACE}.json_schema"
            raise BadRequest(f"{place} must be an object with a schema.", param=place)
        schema = described.get("schema")
        if not isinstance(schema, Mapping):
            place = f"{_PLACE}.json_schema.schema"
            raise BadRequest(f"{place} must be a JSON Schema.", param=place)
        function = {"name": _NAME, "parameters": schema, "strict": described.get("strict")}
        tool = {"type": "function", "function": function}
        try:
            toolset = Toolset.parse([tool])
        except SchemaError as error:
            written = {"tools[0].function.parameters": f"{_PLACE}.json_schema.schema"}
            param = moved_place(error.param, written)
            raise BadRequest(str(error), param=param) from error
        return cls(toolset, json_codec.dumps(schema, option=json_codec.INDENTED).decode())

    def read(self, text: str) -> str:
        """The answer in ``text`` as JSON, coerced and valid. Raises `FormatMismatch`."""
        try:
            found = objects(text)
        except Unreadable as error:
            raise FormatMismatch(str(error)) from error
        if not found:
            raise FormatMismatch("there is no JSON object in the answer")
        try:
            value = self._checked(last_object(found, self._checked).value)
        except BindError as error:
            raise FormatMismatch("\n".join(map(str, error.problems))) from error
        return json_codec.dumps(value).decode()

    def _checked(self, value: Any) -> Any:
        return value if self.toolset is None else self.toolset.bind(_NAME, [value], {})
