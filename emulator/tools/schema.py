"""Bounds on schemas from strangers, checked before anything recursive sees them.

Knows of JSON Schema only which keywords hold other schemas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

#: A schema as it stands inside another: an object, or true (anything) and false (nothing).
Schema = dict[str, Any] | bool
Definitions = Mapping[str, Schema]

MAX_DEPTH = 64
MAX_VALUES = 20_000
MAX_CHARACTERS = 500_000
MAX_BITS = 1024
#: Schemas that judge one and the same value. ``allOf`` of ``$ref``s to ``allOf``s doubles at every
#: step: thirty short definitions would keep whoever reads them busy for hours.
MAX_APPLIED = 1_000
#: How long a chain of them may be: readers follow it by recursion.
MAX_CHAIN = 50

SCHEMA_KEYWORDS = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
SCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "dependentSchemas")


class SchemaError(ValueError):
    """The caller sent a schema that cannot be used; `param` says where in the request."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


_Place: TypeAlias = "tuple[_Place | None, str | int]"
"""Where a value stands: where its container does, and a step. Written out only for an error."""


def guard(value: object, param: str) -> None:
    """See that `value`, which stands at `param`, is JSON of bearable size. Raises SchemaError."""
    values = characters = 0
    waiting: list[tuple[object, _Place, int]] = [(value, (None, param), 1)]
    while waiting:
        node, place, depth = waiting.pop()
        values += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"nested deeper than {MAX_DEPTH} levels", param)
        if values > MAX_VALUES:
            raise SchemaError(f"holds more than {MAX_VALUES} values", param)
        if isinstance(node, dict):
            for key, child in node.items():
                characters += _length(key, place)
                waiting.append((child, (place, key), depth + 1))
        elif isinstance(node, list | tuple):
            waiting.extend((child, (place, n), depth + 1) for n, child in enumerate(node))
        elif isinstance(node, str):
            characters += _length(node, place)
        elif isinstance(node, float) and not math.isfinite(node):
            raise SchemaError(f"{node} is not a JSON number", _written(place))
        elif isinstance(node, int) and node.bit_length() > MAX_BITS:
            raise SchemaError("number too large", _written(place))
        elif not isinstance(node, int | float | None):
            raise SchemaError(f"{kind_of(node)} is not a JSON value", _written(place))
        if characters > MAX_CHARACTERS:
            raise SchemaError(f"holds more than {MAX_CHARACTERS} characters", param)


def guard_application(schema: dict[str, Any], param: str) -> None:
    """Bound how many parts of a cleaned schema judge one value. Raises SchemaError."""
    definitions = schema.get("$defs", {})
    weights: dict[str, int] = {}

    def weight(node: Schema, chain: int = 0) -> int:
        if chain > MAX_CHAIN:
            raise SchemaError(f"more than {MAX_CHAIN} schemas in a row apply to one value", param)
        if not isinstance(node, dict):
            return 1
        total = 1 + sum(weight(part, chain + 1) for part in applied(node))
        name = reference(node)
        if name is not None:
            if name not in weights:
                weights[name] = 0  # while it is weighed: a cycle adds nothing new
                weights[name] = min(weight(definitions[name], chain + 1), MAX_APPLIED + 1)
            total += weights[name]
        return total

    waiting: list[Schema] = [schema, *definitions.values()]
    while waiting:
        node = waiting.pop()
        if weight(node) > MAX_APPLIED:
            raise SchemaError(f"more than {MAX_APPLIED} schemas apply to one value", param)
        waiting.extend(children(node))


def applied(node: dict[str, Any]) -> Iterator[Schema]:
    """The schemas inside `node` that judge the same value as it does."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from node.get(keyword, ())
    for keyword in ("if", "then", "else", "not"):
        if keyword in node:
            yield node[keyword]
    yield from node.get("dependentSchemas", {}).values()


def children(node: Schema) -> Iterator[Schema]:
    """Every schema one level inside `node`, whatever the keyword."""
    if isinstance(node, dict):
        for keyword in SCHEMA_LIST_KEYWORDS:
            yield from node.get(keyword, ())
        for keyword in SCHEMA_MAP_KEYWORDS:
            yield from node.get(keyword, {}).values()
        for keyword in SCHEMA_KEYWORDS:
            if keyword in node:
                yield node[keyword]


def reference(schema: Schema) -> str | None:
    """The name of the definition that a cleaned schema refers to."""
    if isinstance(schema, dict) and "$ref" in schema:
        return str(schema["$ref"]).removeprefix("#/$defs/")
    return None


def _written(place: _Place) -> str:
    steps = []
    container: _Place | None = place
    while container is not None:
        container, step = container
        steps.append(step)
    written = str(steps.pop())
    while steps:
        written = at(written, steps.pop())
    return written


def at(place: str, step: str | int) -> str:
    """One step further into a request: ``tools[0]`` and "function" make ``tools[0].function``."""
    return f"{place}[{step}]" if isinstance(step, int) else f"{place}.{step[:80]}"


def kind_of(value: object) -> str:
    """JSON's word for the kind of a value, or Python's where JSON has none."""
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {
    dict: "object",
    list: "array",
    tuple: "array",
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
}


def _length(text: object, place: _Place) -> int:
    if not isinstance(text, str):
        raise SchemaError(f"an object's keys must be text, not {kind_of(text)}", _written(place))
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        message = "holds half of a surrogate pair, which is no Unicode text"
        raise SchemaError(message, _written(place)) from None
