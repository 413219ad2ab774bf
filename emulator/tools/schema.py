"""JSON Schema from strangers: the keywords that contain other schemas, and limits checked before
any recursive code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

#: A schema inside another: an object, or true (anything) or false (nothing).
Schema = dict[str, Any] | bool
Definitions = Mapping[str, Schema]

MAX_DEPTH = 64
MAX_VALUES = 20_000
MAX_CHARACTERS = 500_000
MAX_BITS = 1024
#: Limit of schemas that apply to one value. ``allOf`` of ``$ref``s to ``allOf``s doubles at every step:
#: thirty short definitions would take hours to read.
MAX_APPLIED = 1_000
#: Length limit of a chain of such schemas, because readers follow it recursively.
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
    """The client sent a schema that cannot be used; `param` is its place in the request."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


_Place: TypeAlias = "tuple[_Place | None, str | int]"
"""The place of a value: the place of its container, and a step. Converted to text only for an
error.
"""


def guard(value: object, param: str) -> None:
    """Check that `value`, at `param` in the request, is JSON within the limits. Raises SchemaError."""
    guard_values([(param, value)], MAX_DEPTH, MAX_VALUES, MAX_CHARACTERS)


def guard_values(
    roots: Iterable[tuple[str, object]], depths: int, most_values: int, most_characters: int
) -> None:
    """Check that the values, each with its place, are JSON and together within the limits.

    Works without recursion and assumes nothing about them. Raises SchemaError.
    """
    values = characters = 0
    for root, value in roots:
        pending: list[tuple[object, _Place, int]] = [(value, (None, root), 1)]
        while pending:
            node, place, depth = pending.pop()
            values += 1
            if depth > depths:
                raise SchemaError(f"nested deeper than {depths} levels", root)
            if values > most_values:
                raise SchemaError(f"more than {most_values} values", root)
            if isinstance(node, dict):
                for key, child in node.items():
                    characters += _length(key, place)
                    pending.append((child, (place, key), depth + 1))
            elif isinstance(node, list | tuple):
                pending.extend((child, (place, n), depth + 1) for n, child in enumerate(node))
            else:
                characters += _scalar_length(node, place)
            if characters > most_characters:
                raise SchemaError(f"more than {most_characters} characters", root)


def _scalar_length(node: object, place: _Place) -> int:
    if isinstance(node, str):
        return _length(node, place)
    if isinstance(node, float) and not math.isfinite(node):
        raise SchemaError(f"{node} is not a JSON number", _place_text(place))
    if isinstance(node, int) and node.bit_length() > MAX_BITS:
        raise SchemaError("number too large", _place_text(place))
    if not isinstance(node, int | float | None):
        raise SchemaError(f"{kind_of(node)} is not a JSON value", _place_text(place))
    return 0


def guard_application(schema: dict[str, Any], param: str) -> None:
    """Limit how many parts of a cleaned schema apply to one value. Raises SchemaError."""
    definitions = schema.get("$defs", {})
    weights: dict[str, int] = {}

    def weight(node: Schema, chain: int = 0) -> int:
        if chain > MAX_CHAIN:
            raise SchemaError(f"more than {MAX_CHAIN} schemas in a row apply to one value", param)
        if not isinstance(node, dict):
            return 1
        total = 1 + sum(weight(part, chain + 1) for part in applicable_schemas(node))
        name = reference(node)
        if name is not None:
            if name not in weights:
                weights[name] = 0  # during the computation: a cycle adds nothing
                weights[name] = min(weight(definitions[name], chain + 1), MAX_APPLIED + 1)
            total += weights[name]
        return total

    pending: list[Schema] = [schema, *definitions.values()]
    while pending:
        node = pending.pop()
        if weight(node) > MAX_APPLIED:
            raise SchemaError(f"more than {MAX_APPLIED} schemas apply to one value", param)
        pending.extend(children(node))


def applicable_schemas(node: dict[str, Any]) -> Iterator[Schema]:
    """Yield the schemas inside `node` that apply to the same value."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from node.get(keyword, ())
    for keyword in ("if", "then", "else", "not"):
        if keyword in node:
            yield node[keyword]
    yield from node.get("dependentSchemas", {}).values()


def children(node: Schema) -> Iterator[Schema]:
    """Yield every schema one level inside `node`, under any keyword."""
    if isinstance(node, dict):
        for keyword in SCHEMA_LIST_KEYWORDS:
            yield from node.get(keyword, ())
        for keyword in SCHEMA_MAP_KEYWORDS:
            yield from node.get(keyword, {}).values()
        for keyword in SCHEMA_KEYWORDS:
            if keyword in node:
                yield node[keyword]


def reference(schema: Schema) -> str | None:
    """Return the name of the definition that a cleaned schema refers to, or None."""
    if isinstance(schema, dict) and "$ref" in schema:
        return str(schema["$ref"]).removeprefix("#/$defs/")
    return None


def _place_text(place: _Place) -> str:
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
    """Append one step to a place: ``tools[0]`` and "function" become ``tools[0].function``."""
    return f"{place}[{step}]" if isinstance(step, int) else f"{place}.{step[:80]}"


def kind_of(value: object) -> str:
    """Return JSON's name for the type of a value, or Python's if JSON has none."""
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
        raise SchemaError(f"an object's keys must be text, not {kind_of(text)}", _place_text(place))
    if text.isascii():
        return len(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "contains half of a surrogate pair, which is not Unicode text"
        raise SchemaError(message, _place_text(place)) from None
    return len(text)
