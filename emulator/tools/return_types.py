"""What a tool's results are, if its definition specifies it. Knows nothing of programs.

The sources are ``output_schema`` (MCP's ``outputSchema``), on the tool or on its function, and then
a description that says "returns JSON" or "returns plain text".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from emulator.tools.type_trees import SCALARS

_KEYS = ("output_schema", "outputSchema", "x-output-schema")
_JSON = re.compile(r"\breturns?\s+(?:an?\s+|the\s+)?(?:valid\s+)?JSON\b", re.IGNORECASE)
_TEXT = re.compile(
    r"\breturns?\s+(?:an?\s+|the\s+)?(?:plain|raw)(?:\s+|-)(?:text|string)\b", re.IGNORECASE
)
_TYPES = {**SCALARS, "object": "dict[str, Any]", "array": "list[Any]"}
_MAX_KEYS = 24
_MAX_NAME = 64


@dataclass(frozen=True)
class ReturnType:
    """``kind``: how to read the text of a result; None if unspecified."""

    kind: Literal["text", "json"] | None = None
    annotation: str = "Any"
    remark: str = ""
    """The keys of an object, for the docstring."""


UNKNOWN_RETURN = ReturnType()


def find_return_type(description: str, *places: Mapping[str, Any]) -> ReturnType:
    """Return the specified type; ``places`` are the objects that may contain an output schema."""
    for place in places:
        for key in _KEYS:
            schema = place.get(key)
            if isinstance(schema, Mapping):
                kind = schema.get("type")
                read: Literal["text", "json"] = "text" if kind == "string" else "json"
                return ReturnType(read, _annotation(schema), _remark(schema))
    if _JSON.search(description):
        return ReturnType("json")
    return ReturnType("text", "str") if _TEXT.search(description) else UNKNOWN_RETURN


def _annotation(schema: object) -> str:
    """Describe one level only: a model needs to know what it can do with a value, not everything it
    may be.
    """
    if not isinstance(schema, Mapping):
        return "Any"
    kind = schema.get("type")
    if kind == "array" and isinstance(items := schema.get("items"), Mapping):
        inner = items.get("type")
        return f"list[{_TYPES.get(inner, 'Any') if isinstance(inner, str) else 'Any'}]"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _remark(schema: Mapping[str, Any]) -> str:
    """Return the keys of the object, or of each object in the list."""
    items = schema.get("items")
    one = items if schema.get("type") == "array" and isinstance(items, Mapping) else schema
    properties = one.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return ""
    names = [name for name in properties if isinstance(name, str) and _is_shown(name)]
    shown = ", ".join(f"{name}: {_annotation(properties[name])}" for name in names[:_MAX_KEYS])
    more = ", ..." if len(properties) > _MAX_KEYS else ""
    return f"{'list of ' if one is items else ''}{{{shown}{more}}}"


def _is_shown(name: str) -> bool:
    return len(name) <= _MAX_NAME and name.isprintable()
