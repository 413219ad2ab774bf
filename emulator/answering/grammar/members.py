"""Split an object's schema into plain objects, since a grammar has no conditions.

Unions, conditions and dependencies between members become separate cases. Each case lists its members, the
required ones, and how many there may be. Knows nothing of grammars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from emulator.tools import expansion
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.schema import Schema

_MAX_VARIANTS = 64
_MAX_UNDECIDED = 5
_PRESENCE_KEYWORDS = frozenset({"required", "anyOf", "oneOf", "allOf", "not", "dependentRequired"})
"""A schema with only these keywords constrains which members an object has, not their values."""


@dataclass(frozen=True)
class ObjectShape:
    """One case of an object."""

    properties: Mapping[str, Schema]
    required: frozenset[str]
    undecided: tuple[str, ...]
    """Optional members whose presence depends on that of others; `presences` lists the valid combinations."""
    view: dict[str, Any]
    """The expanded schema of this case."""
    least: int
    most: int | None


def variants(schema: Schema, reading: ExpandedSchema) -> list[ObjectShape]:
    """Return the cases of an object: one for each alternative, and for each side of a condition."""
    return [_shape(view, reading) for view in _cases(reading.view(schema), reading, 0)][
        :_MAX_VARIANTS
    ]


def presences(shape: ObjectShape) -> Iterator[frozenset[str]]:
    """Yield each valid set of undecided members; the other undecided members are absent."""
    tried = shape.undecided[:_MAX_UNDECIDED]
    for presence in product((True, False), repeat=len(tried)):
        chosen = frozenset(
            name for name, is_present in zip(tried, presence, strict=True) if is_present
        )
        if _allows_presence(shape.view, shape.required | chosen):
            yield chosen


def _cases(view: dict[str, Any], reading: ExpandedSchema, depth: int) -> Iterator[dict[str, Any]]:
    if depth > 6:
        yield view
        return
    for keyword in ("anyOf", "oneOf"):
        branches = view.get(keyword, ())
        if branches and not all(map(_is_about_presence, branches)):
            rest = {name: part for name, part in view.items() if name != keyword}
            for branch in branches:
                if branch is not False:
                    yield from _cases(_both(rest, branch, reading), reading, depth + 1)
            return
    if "if" in view:
        sides = list(_sides(view, reading))
        if sides:
            for side in sides:
                yield from _cases(side, reading, depth + 1)
            return
    dependent = view.get("dependentSchemas")
    if dependent:
        rest = {name: part for name, part in view.items() if name != "dependentSchemas"}
        names = [
            name
            for name in dependent
            if name in expansion.members(view, reading.definitions).properties
        ]
        for presence in list(product((True, False), repeat=len(names)))[:_MAX_VARIANTS]:
            case = rest
            for name, is_present in zip(names, presence, strict=True):
                addition = {"allOf": [{"required": [name]}, dependent[name]]}
                case = _both(case, addition if is_present else _without(name), reading)
            yield from _cases(case, reading, depth + 1)
        return
    yield view


def _without(name: str) -> dict[str, Any]:
    return {"properties": {name: False}}


def _sides(view: dict[str, Any], reading: ExpandedSchema) -> Iterator[dict[str, Any]]:
    """Yield both sides of a condition on the value of one member that has an enum.

    Yields nothing for any other condition.
    """
    condition = view["if"]
    conditions = condition.get("properties", {}) if isinstance(condition, dict) else {}
    if len(conditions) != 1 or not condition.keys() <= {"properties", "required", "type"}:
        return
    [(name, expected)] = conditions.items()
    own = view.get("properties", {}).get(name, True)
    values = _values(own, reading)
    if not isinstance(expected, dict):
        return
    rest = {
        keyword: part for keyword, part in view.items() if keyword not in ("if", "then", "else")
    }
    matching = [v for v in values or _values(expected, reading) if reading.admits(v, expected)]
    others = [v for v in values if not reading.admits(v, expected)]
    for chosen, then in ((matching, "then"), (others, "else")):
        if chosen:
            choice = {"properties": {name: {"enum": chosen}}, "required": [name]}
            yield _both(_both(rest, choice, reading), view.get(then, True), reading)


def _values(schema: Schema, reading: ExpandedSchema) -> list[Any]:
    view = reading.view(schema)
    if "const" in view:
        return [view["const"]]
    return list(view.get("enum", [True, False] if view.get("type") == "boolean" else []))


def _both(view: dict[str, Any], more: Schema, reading: ExpandedSchema) -> dict[str, Any]:
    return expansion.expand({"allOf": [view, more]}, reading.definitions)


def _shape(view: dict[str, Any], reading: ExpandedSchema) -> ObjectShape:
    inside = expansion.members(
        {name: part for name, part in view.items() if name not in ("if", "then", "else")},
        reading.definitions,
    )
    mentioned = dict.fromkeys(name for name in _mentioned(view) if name not in inside.required)
    undecided = [name for name in mentioned if name in inside.properties]
    most = view.get("maxProperties")
    return ObjectShape(
        inside.properties,
        frozenset(view.get("required", ())),
        tuple(undecided),
        view,
        int(view.get("minProperties", 0)),
        None if most is None else int(most),
    )


def _is_about_presence(schema: Schema) -> bool:
    return isinstance(schema, dict) and schema.keys() <= _PRESENCE_KEYWORDS


def _mentioned(schema: Schema) -> Iterator[str]:
    """Yield the members whose presence `schema` makes depend on that of others."""
    if not isinstance(schema, dict):
        return
    for keyword in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(keyword, ()):
            if _is_about_presence(part):
                yield from part.get("required", ())
                yield from _mentioned(part)
    if _is_about_presence(negated := schema.get("not", True)):
        yield from negated.get("required", ())
        yield from _mentioned(negated)
    for name, needed in schema.get("dependentRequired", {}).items():
        yield from (name, *needed)


def _allows_presence(schema: Schema, present: frozenset[str]) -> bool:
    """Return True if `schema` allows an object with exactly these members, whatever their values are."""
    if not isinstance(schema, dict):
        return schema
    parts = {keyword: schema.get(keyword, ()) for keyword in ("allOf", "anyOf", "oneOf")}
    matches = {
        keyword: [_allows_presence(part, present) for part in branches]
        for keyword, branches in parts.items()
        if all(map(_is_about_presence, branches))
    }
    negated = schema.get("not", False)
    return (
        present.issuperset(schema.get("required", ()))
        and all(matches.get("allOf", ()))
        and (not matches.get("anyOf") or any(matches["anyOf"]))
        and (not matches.get("oneOf") or sum(matches["oneOf"]) == 1)
        and not (_is_about_presence(negated) and _allows_presence(negated, present))
        and all(
            name not in present or present.issuperset(needed)
            for name, needed in schema.get("dependentRequired", {}).items()
        )
    )
