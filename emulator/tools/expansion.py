"""Interpret cleaned schemas: which types of value one admits, which members an object may have.

References are followed and ``allOf`` is merged; both stop at cycles. The result is good enough to
write a signature or to choose a coercion; only the validator decides whether a value is valid.
Knows nothing of Python names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from emulator.core.cached_property import cached_property
from emulator.tools.schema import Definitions, Schema, reference
from emulator.tools.validator import matcher

ModelView = frozenset[str]

#: Keyword of an object in a strict schema, added by `schema_cleaning`.
STRICT = "strict"

#: Keywords that restrict a value without naming its type: `anyOf: [{required: [a]}, ...]`.
_MERELY_LIMITING = frozenset({"required", "not", "if", "then", "else", "dependentRequired"})

_BY_KEYWORD = (
    ("object", ("properties", "additionalProperties", "patternProperties", "required")),
    ("array", ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")),
    ("string", ("pattern", "minLength", "maxLength", "format")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)


@dataclass(frozen=True)
class Members:
    """The members that an object may have. `extra`: the schema of other members; None if
    unspecified.
    """

    properties: dict[str, Schema]
    required: frozenset[str]
    extra: Schema | None
    patterns: dict[str, Schema]
    nulls: frozenset[str] = frozenset()
    """Members that are null if the model omits them, and so are not in `required`: in a strict schema
    every member is required, and an optional one may be null (OpenAI, "Structured model outputs").
    """

    def schema_of(self, name: str) -> Schema | None:
        """Return the schema of the member `name`, or None if the schema does not mention it. JSON
        Schema would accept such a member, but a misspelt argument is never intended.
        """
        if name in self.properties:
            return self.properties[name]
        for pattern, schema in self._matchers:
            if pattern(name):
                return schema
        return None if self.extra is False else self.extra

    @cached_property
    def _matchers(self) -> list[tuple[Callable[[str], bool], Schema]]:
        return [(matcher(pattern), schema) for pattern, schema in self.patterns.items()]


def expand(schema: Schema, definitions: Definitions) -> dict[str, Any]:
    """Return `schema` as one object without ``$ref`` and ``allOf``. Its own keywords take
    precedence.
    """
    return expand_seen(schema, definitions)[0]


def expand_seen(
    schema: Schema, definitions: Definitions, seen: ModelView = frozenset()
) -> tuple[dict[str, Any], ModelView]:
    """Like `expand`, but also return the followed definitions: following one of them again is a
    cycle.
    """
    if not isinstance(schema, dict):
        return ({} if schema else {"not": {}}), seen
    merged = {k: v for k, v in schema.items() if k not in ("$ref", "allOf", "$defs")}
    parts: list[Schema] = list(schema.get("allOf", ()))
    name = reference(schema)
    if name is not None and name not in seen:
        seen = seen | {name}
        parts.insert(0, definitions.get(name, {}))
    for part in parts:
        more, passed = expand_seen(part, definitions, seen)
        seen = seen | passed
        _merge(merged, more)
    return merged, seen


_NARROWER: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for keyword, value in more.items():
        if keyword not in into:
            into[keyword] = value
        elif keyword == "properties":
            old = into[keyword]
            both = {k: {"allOf": [old[k], v]} for k, v in value.items() if k in old and old[k] != v}
            into[keyword] = {**old, **value, **both}
        elif keyword == "required":
            into[keyword] = list(dict.fromkeys([*into[keyword], *value]))
        elif keyword == "type":
            into[keyword] = _common(into[keyword], value)
        elif keyword == "enum":
            into[keyword] = [v for v in into[keyword] if v in value] or into[keyword]
        elif keyword in _NARROWER:
            into[keyword] = _NARROWER[keyword](into[keyword], value)
        elif keyword in ("anyOf", "oneOf"):
            # Two unions are reduced to the narrower one; the validator applies both.
            into[keyword] = min(into[keyword], value, key=len)


def _common(one: str | list[str], other: str | list[str]) -> str | list[str]:
    first_types = [one] if isinstance(one, str) else one
    second_types = [other] if isinstance(other, str) else other
    shared = [t for t in first_types if t in second_types]
    if (
        not shared
        and "integer" in (*first_types, *second_types)
        and "number" in (*first_types, *second_types)
    ):
        return "integer"
    return shared[0] if len(shared) == 1 else shared or one


def types(view: dict[str, Any]) -> tuple[str, ...]:
    """Return the types that an expanded schema names or, naming none, clearly means; () for any."""
    written = view.get("type")
    if isinstance(written, str):
        return (written,)
    if written:
        return tuple(written)
    for name, keywords in _BY_KEYWORD:
        if any(k in view for k in keywords):
            return (name,)
    return ()


def is_of(value: object, kind: str) -> bool:
    """Return True if a JSON value has the type; unlike in Python, true is not a number."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON[kind])


_PYTHON: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def branches(view: dict[str, Any]) -> tuple[Schema, ...]:
    """Return the alternatives of an expanded schema that is a union of different types of value,
    else ().
    """
    for keyword in ("anyOf", "oneOf"):
        found = view.get(keyword, ())
        if found and not all(isinstance(b, dict) and b.keys() <= _MERELY_LIMITING for b in found):
            return tuple(found)
    return ()


def alternatives(view: dict[str, Any]) -> Iterator[Schema]:
    """Yield each branch of a union, combined with the keywords next to the union."""
    excluded = ("anyOf", "oneOf", "description", "default")
    common_keywords = {keyword: value for keyword, value in view.items() if keyword not in excluded}
    for branch in branches(view):
        if branch is True:
            branch = {}  # noqa: PLW2901
        if isinstance(branch, dict):
            yield {"allOf": [branch, common_keywords]} if common_keywords else branch


def members(schema: Schema, definitions: Definitions, seen: ModelView = frozenset()) -> Members:
    """Return the members of an object, including those of its alternatives and conditions."""
    view, seen = expand_seen(schema, definitions, seen)
    own: dict[str, Schema] = view.get("properties", {})
    properties = dict(own)
    required = list(view.get("required", ()))
    patterns: dict[str, Schema] = dict(view.get("patternProperties", {}))
    extra = view.get("additionalProperties", view.get("unevaluatedProperties"))
    extra = True if extra == {} else extra  # zod writes ``{}`` for any value

    def add(part: Schema, *, alternative: bool = False) -> Members:
        found = members(part, definitions, seen)
        for name, child in found.properties.items():
            if name not in properties or properties[name] is True or properties[name] == {}:
                properties[name] = child
            elif alternative and properties[name] != child and name not in own:
                properties[name] = _either(properties[name], child)
        patterns.update(found.patterns)
        return found

    for keyword in ("anyOf", "oneOf"):
        added = [add(b, alternative=True) for b in view.get(keyword, ()) if b is not False]
        if added:
            common = frozenset.intersection(*(t.required for t in added))
            required += [n for n in added[0].properties if n in common]
            if extra is None and any(t.extra not in (None, False) for t in added):
                extra = True
    for keyword in ("then", "else"):
        if keyword in view:
            add(view[keyword])
    for part in view.get("dependentSchemas", {}).values():
        add(part)
    for name in required:
        properties.setdefault(name, {})
    nulls = {n for n in required if STRICT in view and _is_nullable(properties[n], definitions)}
    return Members(properties, frozenset(required) - nulls, extra, patterns, frozenset(nulls))


def _is_nullable(schema: Schema, definitions: Definitions, seen: ModelView = frozenset()) -> bool:
    """Return True if a schema names null among the types or choices of its value."""
    view, seen = expand_seen(schema, definitions, seen)
    if "enum" in view:
        return None in view["enum"]
    return "null" in types(view) or any(
        _is_nullable(branch, definitions, seen) for branch in branches(view)
    )


def _either(one: Schema, other: Schema) -> Schema:
    known = one["anyOf"] if isinstance(one, dict) and one.keys() == {"anyOf"} else [one]
    return {"anyOf": known if other in known else [*known, other]}
