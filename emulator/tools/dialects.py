"""Translate older drafts, OpenAPI, BFCL and informal schemas to JSON Schema 2020-12.

Handles one level of a schema; the caller descends into it.
"""

from __future__ import annotations

from typing import Any

TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})

#: Type name in lower case -> JSON Schema type. None: any type.
TYPE_NAMES: dict[str, str | None] = {
    **{name: name for name in TYPES},
    **dict.fromkeys(("dict", "map", "hashmap", "mapping", "struct"), "object"),
    **dict.fromkeys(("list", "tuple", "set", "sequence", "arraylist", "vector"), "array"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("int", "long", "short", "byte", "bigint"), "integer"),
    **dict.fromkeys(("str", "char", "text"), "string"),
    "bool": "boolean",
    "none": "null",
    "any": None,
}

_BOUNDS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_COMPOUND = ("$ref", "const", "allOf", "anyOf", "oneOf")


_OLDER = {
    "prefixItems": "items",
    "items": "additionalItems",
    **dict.fromkeys(("dependentRequired", "dependentSchemas"), "dependencies"),
}


def spelling(keyword: str, modern: dict[str, Any], written: dict[str, Any]) -> str:
    """The keyword that ``written`` has for one that is in `modernize` of it."""
    is_same = modern.get(keyword) is written.get(keyword)
    return keyword if is_same else _OLDER.get(keyword, keyword)


def modernize(node: dict[str, Any]) -> dict[str, Any]:
    """Return `node` with the keywords of older drafts replaced."""
    new = dict(node)
    if isinstance(new.get("items"), list | tuple):  # a tuple until 2019-09
        new.setdefault("prefixItems", new.pop("items"))
        if "additionalItems" in new:
            new["items"] = new["additionalItems"]
    for bound, exclusive in _BOUNDS:
        if isinstance(new.get(exclusive), bool):  # draft 4
            excluded = new.pop(exclusive)
            if excluded and bound in new:
                new[exclusive] = new.pop(bound)
    if isinstance(new.get("dependencies"), dict):  # draft 7
        for key, value in new["dependencies"].items():
            kind = "dependentRequired" if isinstance(value, list) else "dependentSchemas"
            new[kind] = {**new.get(kind, {}), key: value}
    properties = new.get("properties")
    if isinstance(properties, dict):  # draft 3 wrote it on the property itself
        flagged = [
            name
            for name, schema in properties.items()
            if isinstance(schema, dict) and schema.get("required") is True
        ]
        if flagged:
            listed = new.get("required")
            new["required"] = [*(listed if isinstance(listed, list) else ()), *flagged]
    return new


def apply_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Translate OpenAPI 3.0's ``nullable`` in a cleaned schema."""
    if "type" in schema and not any(keyword in schema for keyword in _COMPOUND):
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        widened = {**schema, "type": list(dict.fromkeys([*types, "null"]))}
        if "enum" in schema and None not in schema["enum"]:
            widened["enum"] = [*schema["enum"], None]
        return widened
    if "enum" not in schema and not any(keyword in schema for keyword in _COMPOUND):
        return schema  # it admits null as it is
    remarks = {k: v for k, v in schema.items() if k in ("title", "description", "default")}
    rest = {k: v for k, v in schema.items() if k not in remarks}
    return {**remarks, "anyOf": [rest, {"type": "null"}]}
